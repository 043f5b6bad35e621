"""A small real image and a small real document, made here: nothing is fetched, and nobody's data is sent."""

from __future__ import annotations

import struct
import zlib

from tollbridge.core.messages import DataPart

SIDE = 64  # pixels: smaller images are refused by some providers
_RED = b"\xd0\x20\x20"


def image() -> DataPart:
    """A red square."""
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    rows = (b"\0" + _RED * SIDE) * SIDE
    chunks = (_chunk(b"IHDR", head), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b""))
    return DataPart(b"\x89PNG\r\n\x1a\n" + b"".join(chunks), "image/png", "red.png")


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


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
