"""Events to the parts an editor shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from tollbridge.core.events import (
    Corrected,
    Data,
    Event,
    Failed,
    File,
    Finished,
    ReasoningDelta,
    ReasoningEnded,
    Source,
    TextDelta,
    ToolCall,
)
from tollbridge.core.json import write_json
from tollbridge.core.media import shown_mime
from tollbridge.core.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.core.texts import mended

CITATION = "application/vnd.vscode.citation+json"
LINK = "text/uri-list"


def parts_of(events: Iterable[Event], *, reasoning: bool = True) -> list[Part]:
    """What an editor shows of these events. Calls it may not run, and endings, are not shown."""
    parts: list[Part] = []
    for event in events:
        match event:
            case TextDelta(text):
                if text:
                    parts.append(TextPart(text))
            case ReasoningDelta(text, id_):
                if reasoning and text:
                    parts.append(ThinkingPart(text, id_))
            case ReasoningEnded(id_, metadata):
                if reasoning and metadata:
                    parts.append(ThinkingPart("", id_, metadata))
            case ToolCall():
                if event.offered:
                    parts.append(
                        ToolCallPart(event.call_id, event.name, _arguments(event.input), event.metadata)
                    )
            case File():
                parts.append(_file(event))
            case Source():
                parts.append(DataPart(write_json(_cited(event)).encode(), CITATION))
            case Data():
                mime = f"application/vnd.vercel.{event.name.removeprefix('data-')}+json"
                parts.append(DataPart(write_json(event.value).encode(), mime, event.id))
            case Corrected() | Finished() | Failed():  # an editor cannot unsay
                pass
            case _:
                assert_never(event)
    return parts


def _arguments(given: Any) -> dict[str, Any]:
    """An editor's tools take an object. A custom tool's input is free text, and may be empty."""
    if given is None:
        return {}
    return given if isinstance(given, dict) else {"input": given}


def _file(file: File) -> DataPart:
    if file.data is not None:
        return DataPart(file.data, shown_mime(file.data, file.mime), file.name)
    return DataPart(mended(file.url or "").encode(), LINK, file.name)


def _cited(source: Source) -> dict[str, object]:
    names = {"sourceId": source.id, "url": source.url, "title": source.title}
    names |= {"mediaType": source.mime, "filename": source.filename}
    return {"type": "citation", **{name: value for name, value in names.items() if value is not None}}
