"""The usage page: one HTML file, for a browser and for a webview of an editor.

`make page` builds it from `extension/page`. It contains no figures: it asks for the document that
`tollbridge.storage.reports` describes.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from tollbridge.storage.reports import UsageReport

# How many days a report can cover.
MAX_DAYS = 3650


@functools.cache
def read_page() -> str:
    """Return the page as HTML."""
    return Path(__file__).with_name("usage.html").read_text(encoding="utf-8")


def encode_report(report: UsageReport, known_revision: str | None) -> bytes:
    """Encode a report as JSON; only its revision, if the page already shows that one."""
    if report.revision == known_revision:
        return msgspec.json.encode({"revision": report.revision})
    return msgspec.json.encode(report)
