"""Convert the events of an answer to message parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, assert_never

from tollbridge.history.reasoning import ReasoningPacker
from tollbridge.history.tool_calls import repair_arguments, wrap_arguments
from tollbridge.types.errors import BridgeError, BrokenCall
from tollbridge.types.events import (
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
from tollbridge.types.media import display_mime
from tollbridge.types.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.types.reasoning import Origin
from tollbridge.types.text import replace_surrogates, write_json

CITATION = "application/vnd.vscode.citation+json"
LINK = "text/uri-list"


def parts_from_events(events: Iterable[Event], *, reasoning: bool = True) -> list[Part]:
    """Convert events to the parts that an editor displays.

    Tool calls that are not offered, corrections of displayed text, and endings have no part.

    Args:
        events: The events of an answer, or of a piece of it.
        reasoning: Whether to include thinking parts.
    """
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
                parts.append(_file_part(event))
            case Source():
                parts.append(DataPart(write_json(_citation(event)).encode(), CITATION))
            case Data():
                mime = f"application/vnd.vercel.{event.name.removeprefix('data-')}+json"
                parts.append(DataPart(write_json(event.value).encode(), mime, event.id))
            case Corrected() | Finished() | Failed():
                pass
            case _:
                assert_never(event)
    return parts


def join_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join the pieces of a streamed answer to the parts of one assistant message.

    Adjacent texts are joined, and so are thinking parts with the same id, up to the one that has metadata.
    Data parts are dropped: files that a model generated are not sent back.
    """
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        match part, last:
            case TextPart(text), TextPart(before):
                joined[-1] = TextPart(before + text)
            case ThinkingPart(), ThinkingPart(before, id_, None) if part.id == id_:
                joined[-1] = ThinkingPart(before + part.text, id_, part.metadata)
            case ((TextPart() | ThinkingPart() | ToolCallPart()), _):
                joined.append(part)
            case DataPart(), _:
                pass
    return tuple(joined)


def _arguments(value: Any) -> dict[str, Any]:
    """Convert a call's input to an object, which editors require. The input of a custom tool is text."""
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"input": value}


def _file_part(file: File) -> DataPart:
    if file.data is not None:
        return DataPart(file.data, display_mime(file.data, file.mime), file.name)
    return DataPart(replace_surrogates(file.url or "").encode(), LINK, file.name)


def _citation(source: Source) -> dict[str, object]:
    fields = {"sourceId": source.id, "url": source.url, "title": source.title}
    fields |= {"mediaType": source.mime, "filename": source.filename}
    return {"type": "citation", **{name: value for name, value in fields.items() if value is not None}}


class AnswerParts:
    """Converts the events of one answer to parts, with tool names restored and reasoning marked.

    Args:
        name: Returns the caller's name of a tool for the name that was sent.
        origin: The model and gateway that answer. With an origin, reasoning is marked with it, and `close`
            returns a reasoning pack.
        reasoning: Whether to include thinking parts.
        tools: The names of the caller's tools, if known. A backend can have others.

    Attributes:
        changes: Sentences about tool calls that were changed.
    """

    def __init__(
        self,
        name: Callable[[str], str] | None = None,
        origin: Origin | None = None,
        *,
        reasoning: bool = True,
        tools: Collection[str] | None = None,
    ) -> None:
        self._tools = tools
        self._reasoning = reasoning
        self._original_name = name or (lambda sent: sent)
        self._packer = ReasoningPacker(origin) if origin is not None else None
        self._withheld: dict[str, ToolCall] = {}
        self._invalid: tuple[str, ...] = ()
        self.changes: list[str] = []

    def take(self, events: Iterable[Event]) -> list[Part]:
        """Convert the next events of the answer."""
        renamed = [self._rename(event) for event in events]
        for event in renamed:
            if isinstance(event, ToolCall) and not event.offered:
                self._withheld[event.call_id] = event
            elif isinstance(event, Finished):
                self._invalid = event.invalid
        return self._parts(renamed)

    def close(self, error: BridgeError | None = None) -> tuple[list[Part], BridgeError | None]:
        """End the answer.

        Tool calls with invalid arguments are passed to the caller, whose tool rejects them, so that the model
        sees the reason. They are not a failure of the answer.

        Args:
            error: The error with which the answer ended.

        Returns:
            The remaining parts, and the error unless it was resolved.
        """
        parts: list[Part] = []
        error = error or self._rejected_calls()
        if isinstance(error, BrokenCall) and all(self._can_pass_on(call_id) for call_id in error.calls):
            calls: list[Event] = [self._offer(self._withheld[call_id]) for call_id in error.calls]
            parts = self._parts(calls)
            error = None
        if self._packer is not None and error is None:
            parts += self._packer.close()
        return parts, error

    def _parts(self, events: list[Event]) -> list[Part]:
        marked = events if self._packer is None else self._packer.take(events)
        return parts_from_events(marked, reasoning=self._reasoning)

    def _rename(self, event: Event) -> Event:
        if not isinstance(event, ToolCall) or self._original_name(event.name) == event.name:
            return event
        name = self._original_name(event.name)
        return ToolCall(event.call_id, name, event.input, event.offered, event.metadata)

    def _rejected_calls(self) -> BrokenCall | None:
        """Return an error if the backend rejected calls and ended the answer without telling the model."""
        names = [self._withheld[call_id].name for call_id in self._invalid if call_id in self._withheld]
        if not names:
            return None
        message = f"The gateway rejected the model's call to {names[0]}. Ask the model to try again."
        return BrokenCall(message, calls=tuple(self._invalid))

    def _can_pass_on(self, call_id: str) -> bool:
        """Return whether the caller can answer a call: it has a name and is not for a tool of the backend."""
        call = self._withheld.get(call_id)
        if call is None or not call.name:
            return False
        return call_id not in self._invalid or self._tools is None or call.name in self._tools

    def _offer(self, call: ToolCall) -> ToolCall:
        """Return a call that the caller can run, with its arguments repaired or wrapped.

        Only text is repaired. Arguments that the gateway could parse and rejected are never run as they are.
        """
        if isinstance(call.input, str):
            text, arguments = call.input, repair_arguments(call.input)
            problem = f"Invalid JSON in the arguments of the call to {call.name}"
        else:
            text, arguments = write_json(call.input), None
            problem = f"The gateway rejected the arguments of the call to {call.name}"
        if arguments is None:
            arguments, action = wrap_arguments(text), "passed to the tool as text"
        else:
            action = "repaired"
        self.changes.append(f"{problem}; {action}.")
        return ToolCall(call.call_id, call.name, arguments, metadata=call.metadata)
