"""What a message may hold: texts that are whole, and images and files the reader takes.

What cannot be sent is replaced by a note in its place, so that the model knows there was something.
"""

from __future__ import annotations

import re

from tollbridge.core.media import UNKNOWN, fingerprint, is_text, true_mime
from tollbridge.core.messages import DataPart, TextPart
from tollbridge.core.texts import MAX_FILE_DATA, MAX_IMAGE_URL, mended, pieces
from tollbridge.history.changes import Changes
from tollbridge.history.target import Target

_MIME = re.compile(r"[a-z0-9][a-z0-9.+_-]*/[a-z0-9][a-z0-9.+_-]*\Z")


def legal_content(part: TextPart | DataPart, target: Target, changes: Changes) -> list[TextPart | DataPart]:
    """The part as the reader takes it: itself, several, a note, or nothing where there was nothing."""
    if isinstance(part, TextPart):
        return _text(part.text, changes)
    mime = _mime(part)
    if is_text(mime):
        try:
            return _text(part.data.decode(), changes)
        except UnicodeDecodeError:
            mime = UNKNOWN
    problem = _problem(part, mime, target)
    if problem is None:
        return [DataPart(part.data, mime, part.name and mended(part.name))]
    what = "image" if mime.startswith("image/") else "file"
    size = f"{mime}, {len(part.data):,} bytes"
    changes.say(
        what,
        f"An {what} ({size}) was left out: {problem}."
        if what == "image"
        else f"A {what} ({size}) was left out: {problem}.",
    )
    return [TextPart(f"[{what}, {size}, left out: {problem}]")]


def _text(text: str, changes: Changes) -> list[TextPart | DataPart]:
    sent = mended(text)
    if sent != text:
        changes.say("characters", "Broken characters in a text were replaced.")
    if not sent:
        return []
    found = pieces(sent)
    if len(found) > 1:
        changes.say("oversized", f"A text of {len(sent):,} characters was sent in {len(found)} pieces.")
    return [TextPart(piece) for piece in found]


def _mime(part: DataPart) -> str:
    mime = true_mime(part.data, part.mime)
    return mime if _MIME.match(mime) else UNKNOWN


def _problem(part: DataPart, mime: str, target: Target) -> str | None:
    is_image = mime.startswith("image/")
    limit = MAX_IMAGE_URL if is_image else MAX_FILE_DATA
    if not part.data:
        return "it is empty"
    if is_image and not target.images:
        return "the model takes no images"
    if not is_image and not target.files:
        return "the model takes no files"
    if target.refused and fingerprint(part.data) in target.refused:
        return "the gateway refused it before"
    if len(f"data:{mime};base64,") + (len(part.data) + 2) // 3 * 4 > limit:
        return f"it is larger than the {limit // (1024 * 1024)} MiB that can be sent"
    return None
