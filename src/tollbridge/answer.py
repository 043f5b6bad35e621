"""The answer of a request: everything that was received of it, and how it ended.

`Answer` is the only accumulator of events. The result of a turn is one, from the first event on and however
the turn ends; `create` of a client and the stream adapters return one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tollbridge.history.answer import apply_corrections, join_parts, parts_from_events
from tollbridge.history.reasoning import ReasoningPacker
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import (
    Corrected,
    Cost,
    Event,
    Failed,
    File,
    Finished,
    FinishReason,
    ReasoningDelta,
    Source,
    TextDelta,
    Usage,
)
from tollbridge.types.messages import Message, Origin, Part, Role, TextPart, ThinkingPart, ToolCallPart

if TYPE_CHECKING:
    from tollbridge.estimator import Preflight
    from tollbridge.tokens.prompt_cache import CacheReport

AnswerOutcome = Literal["running", "completed", "failed", "cancelled"]


class Answer:
    """An answer, complete or as far as it was received.

    To run a tool loop, append `message` and a user message with the results of `tool_calls` to the request.

    Attributes:
        outcome: `running` until the end.
        error: Why it failed; `None` if it did not, and if the caller's own code ended it.
        events: All events in their order. Reasoning is marked with its origin, if one was given.
        finished: The gateway's end of the answer, if it sent one.
        usage: What the gateway reported for the whole turn, failed attempts included; `None` if it reported
            nothing.
        cost: What the turn costs, failed attempts included.
        first: Seconds until the first event.
        duration: Seconds until the end.
        changes: One sentence for each thing that was changed in the request or the answer.
        counts: How often each kind of thing was changed.
        preflight: The estimate made before sending, if one was made.
        warnings: A sentence each if the answer was cut short, the prompt is close to the context window, a
            field that concerns privacy or the meaning of the answer was not sent, or most of a budget is
            spent.
        cache: What the provider's prompt cache did for this turn, and why not more; `None` if unknown.

    Args:
        origin: The model and the gateway that answer. Reasoning is valid only for them, so it is marked.
        reasoning: Whether the parts include reasoning.
    """

    def __init__(self, origin: Origin | None = None, *, reasoning: bool = True) -> None:
        self.outcome: AnswerOutcome = "running"
        self.error: BridgeError | None = None
        self.events: list[Event] = []
        self.finished: Finished | None = None
        self.usage: Usage | None = None
        self.cost = Cost()
        self.first: float | None = None
        self.duration = 0.0
        self.changes: tuple[str, ...] = ()
        self.counts: Mapping[str, int] = {}
        self.preflight: Preflight | None = None
        self.warnings: list[str] = []
        self.cache: CacheReport | None = None
        self._packer = None if origin is None else ReasoningPacker(origin)
        self._pack: list[Part] | None = None
        self._has_reasoning_parts = reasoning
        # The parts of the first `_converted` events, as they arrived: each event is converted once.
        self._pieces: list[Part] = []
        self._converted = 0
        self._taken = 0  # of the pieces, by `take_parts`

    def add(self, events: Iterable[Event]) -> list[Event]:
        """Add events. Return them as they are kept: with the reasoning marked."""
        batch = list(events) if self._packer is None else self._packer.take(events)
        self.events += batch
        for event in batch:
            if isinstance(event, Finished):
                self.finished = event
                self.usage = event.usage
            elif isinstance(event, Failed):
                self.error = self.error or event.error
                self.usage = self.usage or event.error.usage
        return batch

    def take_parts(self) -> list[Part]:
        """Return the parts that have arrived since the last call, for callers that show them at once.

        Text that was shown cannot be corrected, so these parts ignore corrections.
        """
        self._convert()
        parts = self._pieces[self._taken :]
        self._taken = len(self._pieces)
        return parts

    def take_reasoning(self) -> list[Part]:
        """Return all reasoning of a complete answer as one part, or no part if there is none.

        It is for callers that cannot keep the metadata of single parts, and return this part with the answer.
        """
        if self._pack is None:
            self._pack = [] if self._packer is None else self._packer.close()
        return self._pack

    def end(self, outcome: AnswerOutcome, error: BridgeError | None = None) -> None:
        """Note how the answer ended."""
        self.outcome = outcome
        self.error = error

    @property
    def pieces(self) -> list[Part]:
        """The parts as they arrived, files and sources included, with the corrections applied."""
        self._convert()
        if any(map(_is_correction, self.events)):
            return parts_from_events(apply_corrections(self.events), reasoning=self._has_reasoning_parts)
        return self._pieces

    @property
    def parts(self) -> tuple[Part, ...]:
        """The text, the reasoning and the offered tool calls as the parts of one message."""
        return join_parts(self.pieces)

    @property
    def message(self) -> Message:
        """The answer as a message, to append to the messages of the next request."""
        return Message(Role.ASSISTANT, self.parts)

    @property
    def text(self) -> str:
        """The text of the answer, without reasoning."""
        return "".join(part.text for part in self.pieces if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        """The text of the reasoning."""
        return "".join(part.text for part in self.pieces if isinstance(part, ThinkingPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls that the caller should answer."""
        return tuple(part for part in self.pieces if isinstance(part, ToolCallPart))

    @property
    def files(self) -> tuple[File, ...]:
        """The files that the model generated."""
        return tuple(event for event in self.events if isinstance(event, File))

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that the model cites."""
        return tuple(event for event in self.events if isinstance(event, Source))

    @property
    def warning(self) -> str | None:
        """The warnings as one text; `None` if there are none."""
        return " ".join(self.warnings) or None

    @property
    def context(self) -> Usage | None:
        """The tokens that fill the context window now: less than `usage` after several steps."""
        return None if self.finished is None else self.finished.context or self.finished.usage

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the model stopped; `None` if the gateway did not report it."""
        return None if self.finished is None else self.finished.reason

    @property
    def response_id(self) -> str | None:
        """The gateway's id of the response."""
        return None if self.finished is None else self.finished.response_id

    @property
    def model(self) -> str | None:
        """The model that answered, as the gateway names it."""
        return None if self.finished is None else self.finished.model

    @property
    def input_tokens(self) -> int | None:
        return None if self.usage is None else self.usage.input_tokens

    @property
    def output_tokens(self) -> int | None:
        return None if self.usage is None else self.usage.output_tokens

    def __repr__(self) -> str:
        return f"Answer(outcome={self.outcome!r}, text={self.text!r}, usage={self.usage!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the events, ready for JSON. The bytes of files are base64."""
        error = self.error
        values = ((name, getattr(self, name)) for name in _JSON_FIELDS)
        fields: dict[str, Any] = msgspec.to_builtins(
            {name: list(value) if isinstance(value, tuple) else value for name, value in values}
        )
        return {**fields, "error": None if error is None else {"kind": error.kind, "message": error.message}}

    def _convert(self) -> None:
        if self._converted < len(self.events):
            events = self.events[self._converted :]
            self._pieces += parts_from_events(events, reasoning=self._has_reasoning_parts)
            self._converted = len(self.events)


# What `to_dict` returns besides the error.
_JSON_FIELDS = (
    *("outcome", "text", "reasoning", "tool_calls", "files", "sources", "parts"),
    *("usage", "context", "cost", "finish_reason", "response_id", "model", "first", "duration"),
    *("changes", "counts", "warning", "cache"),
)


def _is_correction(event: Event) -> bool:
    return isinstance(event, Corrected) or (
        isinstance(event, TextDelta | ReasoningDelta) and event.replaces > 0
    )
