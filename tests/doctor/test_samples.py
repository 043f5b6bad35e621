from __future__ import annotations

import re
import zlib

from tollbridge.doctor import content_checks as samples
from tollbridge.types.media import sniff


def test_the_image_is_a_png_whose_rows_are_all_there() -> None:
    data = samples.image().data
    assert sniff(data) == "image/png"
    begin = data.index(b"IDAT") + 4
    size = int.from_bytes(data[begin - 8 : begin - 4], "big")
    assert len(zlib.decompress(data[begin : begin + size])) == samples.SIDE * (1 + 3 * samples.SIDE)


def test_the_document_is_a_pdf_whose_table_points_at_its_objects() -> None:
    data = samples.document().data
    assert sniff(data) == "application/pdf"
    found = re.search(rb"startxref\n(\d+)\n%%EOF\n\Z", data)
    assert found is not None
    assert data[int(found[1]) :].startswith(b"xref\n")
    places = [int(place) for place in re.findall(rb"(\d{10}) 00000 n ", data)]
    assert len(places) == 5
    for number, place in enumerate(places, 1):
        assert data[place:].startswith(b"%d 0 obj\n" % number)
