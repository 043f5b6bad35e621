"""What an answer holds besides text, thoughts and calls: sources and images, each told once."""

from __future__ import annotations

import binascii
from base64 import b64decode

from tollbridge.core.errors import BridgeError, StreamError
from tollbridge.core.events import Event, File, Source
from tollbridge.core.media import true_mime
from tollbridge.gateways.openresponses.wire import Fields


class Extras:
    """What makes no sense is added to `broken`."""

    def __init__(self, broken: list[BridgeError]) -> None:
        self._broken = broken
        self._sources: set[tuple[str | None, ...]] = set()
        self._files: set[str] = set()

    def image(self, item: Fields) -> list[Event]:
        encoded = item.text("result") or ""
        name = item.text("id") or str(len(self._files))
        if not encoded or name in self._files:
            return []
        self._files.add(name)
        try:
            data = b64decode(encoded.partition(";base64,")[2] or encoded)
        except (binascii.Error, ValueError):
            self._broken.append(StreamError("The gateway sent an image that is not valid base64."))
            return []
        label = f"image/{item.text('output_format') or 'png'}"
        return [File(true_mime(data, label), data)]

    def cited(self, parts: list[Fields]) -> list[Event]:
        return [event for part in parts for note in part.list("annotations") for event in self.cite(note)]

    def cite(self, note: Fields) -> list[Event]:
        url, title = note.text("url"), note.text("title")
        filename, file_id = note.text("filename"), note.text("file_id")
        key = (url, title, filename, file_id)
        if key in self._sources or not (url or filename or file_id):
            return []
        self._sources.add(key)
        if url:
            return [Source("url", url=url, title=title)]
        return [Source("document", id=file_id, title=title or filename, filename=filename)]
