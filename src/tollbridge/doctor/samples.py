"""A small real image and a small real document, made here: nothing is fetched, and nobody's data is sent."""

from __future__ import annotations

from tollbridge.core.messages import DataPart
from tollbridge.core.pictures import draw_png

SIDE = 64  # pixels: smaller images are refused by some providers
_RED = (0xD0, 0x20, 0x20)


def image() -> DataPart:
    """A red square."""
    return DataPart(draw_png(SIDE, SIDE, _RED), "image/png", "red.png")


def document() -> DataPart:
    """A page that says “Toll: 42”."""
    content = b"BT /F1 24 Tf 20 40 Td (Toll: 42) Tj ET"
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    whole, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n" % (size, table, size)
    return DataPart(whole + end + b"startxref\n%d\n%%%%EOF\n" % len(whole), "application/pdf", "toll.pdf")
