"""Convert the events of an answer to message parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, assert_never

import msgspec

from tollbridge.history.arguments import repair_arguments, wrap_arguments
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
from tollbridge.types.messages import (
    METADATA_KEY,
    DataPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    add_origin,
)
from tollbridge.types.text import replace_surrogates, write_json

CITATION = "application/vnd.vscode.citation+json"
LINK = "text/uri-list"


def parts_from_events(events: Iterable[Event], *, reasoning: bool = True) -> list[Part]:
    """Convert events to the parts that an editor displays.

    Tool calls that are not offered, corrections of displayed text, and endings have no part. To store an
    answer, pass its events through `apply_corrections` first.
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
            case ReasoningEnded(id_, metadata, shape):
                if reasoning and metadata:
                    if shape is not None and METADATA_KEY not in metadata:
                        metadata = add_origin(None, metadata, shape=shape)
                    parts.append(ThinkingPart("", id_, metadata))
            case ToolCall():
                if event.offered:
                    parts.append(
                        ToolCallPart(event.call_id, event.name, _arguments(event.input), event.metadata)
                    )
            case File(mime, data, url, name):
                if data is None:
                    parts.append(DataPart(replace_surrogates(url or "").encode(), LINK, name))
                else:
                    parts.append(DataPart(data, display_mime(data, mime), name))
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


def apply_corrections(events: Iterable[Event]) -> list[Event]:
    """Return the events of an answer with its corrections applied, for code that stores the answer.

    Text that a delta or a `Corrected` replaces is removed. A `Corrected` becomes a delta at the position of
    the text that it replaces.
    """
    result: list[Event | None] = []
    # The positions of the deltas of the text, and of the reasoning.
    positions: dict[type[TextDelta | ReasoningDelta], list[int]] = {TextDelta: [], ReasoningDelta: []}
    for event in events:
        match event:
            case TextDelta(text, replaces) | ReasoningDelta(text, _, replaces):
                _remove_end(result, positions[type(event)], replaces)
                positions[type(event)].append(len(result))
                result.append(msgspec.structs.replace(event, replaces=0) if replaces else event)
            case Corrected(text, replaces, of, id_):
                places = positions[TextDelta if of == "text" else ReasoningDelta]
                position = _remove_end(result, places, replaces)
                rest = result[position] if position < len(result) else None
                if isinstance(rest, TextDelta | ReasoningDelta):
                    text = rest.text + text
                else:
                    places.append(position)
                delta = TextDelta(text) if of == "text" else ReasoningDelta(text, id_)
                result[position : position + 1] = [delta]
            case _:
                result.append(event)
    return [event for event in result if event is not None]


def _remove_end(events: list[Event | None], positions: list[int], count: int) -> int:
    """Remove the last characters of the deltas at these positions.

    Return the position of the first delta that was changed, or the end of the list if none was.
    """
    first = len(events)
    while count > 0 and positions:
        first = positions[-1]
        delta = events[first]
        if isinstance(delta, TextDelta | ReasoningDelta):
            if len(delta.text) > count:
                events[first] = msgspec.structs.replace(delta, text=delta.text[:-count])
                return first
            count -= len(delta.text)
        events[first] = None
        positions.pop()
    return first


def join_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join the pieces of a streamed answer to the parts of one assistant message.

    Adjacent texts are joined, and so are thinking parts with the same id, up to the one that has metadata.
    Data parts are dropped: files that a model generated are not sent back.
    """
    result: list[Part] = []
    texts: list[str] = []  # of the last part; joined once, because it can be long
    for part in parts:
        last = result[-1] if result else None
        match part, last:
            case TextPart(text), TextPart():
                texts.append(text)
            case ThinkingPart(text, id_, metadata), ThinkingPart(_, last_id, None) if id_ == last_id:
                texts.append(text)
                result[-1] = ThinkingPart("", id_, metadata)
            case ((TextPart() | ThinkingPart() | ToolCallPart()), _):
                _set_text(result, texts)
                result.append(part)
                texts = [part.text] if isinstance(part, TextPart | ThinkingPart) else []
            case DataPart(), _:
                pass
    _set_text(result, texts)
    return tuple(result)


def _set_text(parts: list[Part], texts: list[str]) -> None:
    if texts:
        parts[-1] = msgspec.structs.replace(parts[-1], text="".join(texts))


def _arguments(value: Any) -> dict[str, Any]:
    """Convert a call's input to an object, which editors require. The input of a custom tool is text."""
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"input": value}


def _citation(source: Source) -> dict[str, object]:
    fields = {"sourceId": source.id, "url": source.url, "title": source.title}
    fields |= {"mediaType": source.mime, "filename": source.filename}
    return {"type": "citation", **{name: value for name, value in fields.items() if value is not None}}


class AnswerEvents:
    """Prepare the events of one answer for the caller.

    Tool names that were changed for the request are changed back, and tool calls with invalid arguments are
    passed on where the caller can answer them, instead of failing the whole answer.

    Args:
        restore_name: Returns the caller's own name of a tool, for the name that was sent to the gateway.
        tools: The caller's tools. A gateway may run others itself; those calls are not the caller's.
    """

    def __init__(
        self, restore_name: Callable[[str], str] | None = None, *, tools: Collection[str] | None = None
    ) -> None:
        self._tools = tools
        self._restore_name = restore_name or (lambda name: name)
        self._withheld: dict[str, ToolCall] = {}
        self._invalid: tuple[str, ...] = ()
        self.changes: list[str] = []

    def take(self, events: Iterable[Event]) -> list[Event]:
        """Return the events with the caller's tool names."""
        result: list[Event] = []
        for event in events:
            if isinstance(event, ToolCall):
                event = msgspec.structs.replace(event, name=self._restore_name(event.name))
                if not event.offered:
                    self._withheld[event.call_id] = event
            elif isinstance(event, Finished):
                self._invalid = event.invalid
            result.append(event)
        return result

    def close(self, error: BridgeError | None = None) -> tuple[list[Event], BridgeError | None]:
        """Return the remaining events and the error that remains.

        A call with invalid arguments is not an error if the caller's tool loop can answer it: the tool
        rejects the arguments and the model reads why.
        """
        error = error or self._rejected_calls()
        if isinstance(error, BrokenCall) and all(self._is_answerable(call_id) for call_id in error.calls):
            return [self._pass_on(self._withheld[call_id]) for call_id in error.calls], None
        return [], error

    def _rejected_calls(self) -> BrokenCall | None:
        """Return an error if the answer ended with calls that the gateway rejected."""
        names = [self._withheld[call_id].name for call_id in self._invalid if call_id in self._withheld]
        if not names:
            return None
        return BrokenCall(
            f"The gateway rejected the model's call to {names[0]}. Ask the model to try again.",
            calls=tuple(self._invalid),
        )

    def _is_answerable(self, call_id: str) -> bool:
        """Return whether the caller can answer the call: it has a name and is not the gateway's own tool."""
        call = self._withheld.get(call_id)
        if call is None or not call.name:
            return False
        return call_id not in self._invalid or self._tools is None or call.name in self._tools

    def _pass_on(self, call: ToolCall) -> ToolCall:
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
