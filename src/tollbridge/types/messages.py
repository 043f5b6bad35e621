"""Which result answers which call: ids come again, results come late, early, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from tollbridge.types.errors import RequestError
from tollbridge.types.quirks import Quirks

# SECTION What an editor says to a model: messages made of parts, and the request they travel in.


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    text: str


class ThinkingPart(msgspec.Struct, frozen=True, tag="thinking"):
    """A model's reasoning. `metadata` is opaque: it goes back to the model that made it, untouched."""

    text: str
    id: str | None = None
    metadata: Mapping[str, Any] | None = None


class ToolCallPart(msgspec.Struct, frozen=True, tag="tool_call", repr_omit_defaults=True):
    """`input` is the JSON value of the arguments; an editor's tools take an object.

    `metadata` is opaque, as for thinking: what the model needs to know its own call again.
    """

    call_id: str
    name: str
    input: Any
    metadata: Mapping[str, Any] | None = None


class DataPart(msgspec.Struct, frozen=True, tag="data"):
    data: bytes
    mime: str
    name: str | None = None


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result"):
    """What a tool answered. A plain string may be given for `parts`, and for any of them."""

    call_id: str
    parts: tuple[TextPart | DataPart, ...] = ()
    is_error: bool = False

    if TYPE_CHECKING:

        def __init__(
            self, call_id: str, parts: str | Iterable[TextPart | DataPart | str] = (), is_error: bool = False
        ) -> None: ...

    def __post_init__(self) -> None:
        _make_tuple(self, (TextPart, DataPart))


Part = TextPart | ThinkingPart | ToolCallPart | ToolResultPart | DataPart


class Message(msgspec.Struct, frozen=True):
    """One turn of one side. A plain string may be given for `parts`, for any of them, and for `role`."""

    role: Role
    parts: tuple[Part, ...] = ()
    name: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self, role: Role | str, parts: str | Iterable[Part | str] = (), name: str | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.role, Role):
            msgspec.structs.force_setattr(self, "role", Role(self.role))
        _make_tuple(self, get_args(Part))


def _make_tuple(owner: Message | ToolResultPart, kinds: tuple[type, ...]) -> None:
    given: Any = owner.parts
    if type(given) is tuple and all(isinstance(part, kinds) for part in given):
        return
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Iterable) or isinstance(given, (bytes, Mapping)):
        raise _no_part(owner, given)
    parts = tuple(TextPart(part) if isinstance(part, str) else part for part in given)
    for part in parts:
        if not isinstance(part, kinds):
            raise _no_part(owner, part)
    msgspec.structs.force_setattr(owner, "parts", parts)


def _no_part(owner: Message | ToolResultPart, given: object) -> RequestError:
    name = type(owner).__name__
    return RequestError(
        f"The parts of a {name} are texts and parts it may hold, and no {type(given).__name__}."
    )


class Tool(msgspec.Struct, frozen=True):
    """A tool the editor offers; `parameters` is a JSON Schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None


class NamedTool(msgspec.Struct, frozen=True):
    """The one tool the model must call."""

    name: str


ToolChoice = Literal["auto", "required", "none"] | NamedTool


class OutputFormat(msgspec.Struct, frozen=True):
    """A JSON Schema the answer's text must follow."""

    name: str
    schema: Mapping[str, Any]
    description: str | None = None
    strict: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one turn asks for. What is `None` or empty is not sent."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    output_format: OutputFormat | None = None
    metadata: Mapping[str, str] | None = None
    # Fields of the wire that this type does not name (`providerOptions`, `service_tier`…), sent as given.
    extra: Mapping[str, Any] | None = None
    # Whether the model is known to reason: then what proves its reasoning is asked for.
    reasons: bool = False
    # What the server does not take: the request is put into words that it does.
    quirks: Quirks | None = None

    def __post_init__(self) -> None:
        for field in ("messages", "tools"):
            given = getattr(self, field)
            if not isinstance(given, tuple):
                msgspec.structs.force_setattr(self, field, tuple(given))


# SECTION Which result answers which call: ids come again, results come late, early, or not at all.

# Where a part stands: which message, and which part of it.
PartIndex = tuple[int, int]


def match_results(messages: Sequence[Message]) -> dict[PartIndex, PartIndex]:
    """Which result answers which call. Of calls with one id the latest message's are meant, first to last;
    a result that stands before its call is taken when no later one is there."""
    open_: dict[str, list[PartIndex]] = {}
    early: dict[str, list[PartIndex]] = {}
    answers: dict[PartIndex, PartIndex] = {}
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                open_.setdefault(part.call_id, []).append((at, number))
            elif isinstance(part, ToolResultPart):
                waiting = open_.get(part.call_id)
                if waiting:
                    meant = min(waiting, key=lambda place: (-place[0], place[1]))
                    waiting.remove(meant)
                    answers[meant] = (at, number)
                else:
                    early.setdefault(part.call_id, []).append((at, number))
    for call_id, waiting in open_.items():
        answers.update(zip(waiting, early.get(call_id, ()), strict=False))
    return answers
