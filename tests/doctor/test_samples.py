from __future__ import annotations

import re
import zlib

from tollbridge.doctor import content_checks as samples
from tollbridge.types.media import sniff


def test_the_image_is_a_png_with_all_of_its_rows() -> None:
    data = samples.make_image().data
    assert sniff(data) == "image/png"
    begin = data.index(b"IDAT") + 4
    size = int.from_bytes(data[begin - 8 : begin - 4], "big")
    assert len(zlib.decompress(data[begin : begin + size])) == samples.IMAGE_SIZE * (
        1 + 3 * samples.IMAGE_SIZE
    )


def test_the_document_is_a_pdf_with_a_correct_cross_reference_table() -> None:
    data = samples.make_document().data
    assert sniff(data) == "application/pdf"
    trailer = re.search(rb"startxref\n(\d+)\n%%EOF\n\Z", data)
    assert trailer is not None
    assert data[int(trailer[1]) :].startswith(b"xref\n")
    offsets = [int(offset) for offset in re.findall(rb"(\d{10}) 00000 n ", data)]
    assert len(offsets) == 5
    for number, offset in enumerate(offsets, 1):
        assert data[offset:].startswith(b"%d 0 obj\n" % number)
