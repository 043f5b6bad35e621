"""One answer as an editor gets it: its own names, calls it can answer, reasoning it can bring back."""

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

# SECTION Events to the parts an editor shows.

CITATION = "application/vnd.vscode.citation+json"
LINK = "text/uri-list"


def parts_from_events(events: Iterable[Event], *, reasoning: bool = True) -> list[Part]:
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
        return DataPart(file.data, display_mime(file.data, file.mime), file.name)
    return DataPart(replace_surrogates(file.url or "").encode(), LINK, file.name)


def _cited(source: Source) -> dict[str, object]:
    names = {"sourceId": source.id, "url": source.url, "title": source.title}
    names |= {"mediaType": source.mime, "filename": source.filename}
    return {"type": "citation", **{name: value for name, value in names.items() if value is not None}}


# SECTION One answer as an editor gets it: its own names, calls it can answer, reasoning it can bring back.


class AnswerParts:
    """Belongs to one answer. `name` gives a tool the name its editor knows; `origin` is who answers; `tools`
    are the editor's own, where that is known: a backend may have others."""

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
        self._name = name or (lambda given: given)
        self._carrying = ReasoningPacker(origin) if origin is not None else None
        self._withheld: dict[str, ToolCall] = {}
        self._invalid: tuple[str, ...] = ()
        self.changes: list[str] = []

    def take(self, events: Iterable[Event]) -> list[Part]:
        found = [self._renamed(event) for event in events]
        for event in found:
            if isinstance(event, ToolCall) and not event.offered:
                self._withheld[event.call_id] = event
            elif isinstance(event, Finished):
                self._invalid = event.invalid
        return self._parts(found)

    def close(self, error: BridgeError | None = None) -> tuple[list[Part], BridgeError | None]:
        """What is left to tell, and the failure that remains. A call whose arguments make no sense is none:
        the editor's loop gets it, its tool refuses it, and the model reads why."""
        parts: list[Part] = []
        error = error or self._refused()
        if isinstance(error, BrokenCall) and all(self._is_for_the_editor(call_id) for call_id in error.calls):
            calls: list[Event] = [self._handed_on(self._withheld[call_id]) for call_id in error.calls]
            parts = self._parts(calls)
            error = None
        if self._carrying is not None and error is None:
            parts += self._carrying.close()
        return parts, error

    def _parts(self, events: list[Event]) -> list[Part]:
        found = events if self._carrying is None else self._carrying.take(events)
        return parts_from_events(found, reasoning=self._reasoning)

    def _renamed(self, event: Event) -> Event:
        if not isinstance(event, ToolCall) or self._name(event.name) == event.name:
            return event
        return ToolCall(event.call_id, self._name(event.name), event.input, event.offered, event.metadata)

    def _refused(self) -> BrokenCall | None:
        """The backend refused calls, and the turn ended there: somebody must tell the model."""
        names = [self._withheld[call_id].name for call_id in self._invalid if call_id in self._withheld]
        if not names:
            return None
        problem = (
            f"The model made a call of {names[0]} that makes no sense to the gateway. Ask it to try again."
        )
        return BrokenCall(problem, calls=tuple(self._invalid))

    def _is_for_the_editor(self, call_id: str) -> bool:
        """Whether its loop can answer: the call has a name, and is not of a tool of the backend's own."""
        call = self._withheld.get(call_id)
        if call is None or not call.name:
            return False
        return call_id not in self._invalid or self._tools is None or call.name in self._tools

    def _handed_on(self, call: ToolCall) -> ToolCall:
        """A text may be mended; what the gateway could read and refused is never run as it is."""
        text = call.input if isinstance(call.input, str) else write_json(call.input)
        given = repair_arguments(text) if isinstance(call.input, str) else None
        problem = "were not JSON" if isinstance(call.input, str) else "were refused by the gateway"
        done = "mended" if given is not None else "handed on as text, for the tool to refuse"
        self.changes.append(f"The arguments of a call of {call.name} {problem}; they were {done}.")
        given = wrap_arguments(text) if given is None else given
        return ToolCall(call.call_id, call.name, given, metadata=call.metadata)
