"""What parts, messages and tools consist of, in the features that are priced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tollbridge.core.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.tokens.categories import Vector
from tollbridge.tokens.families import Family
from tollbridge.tokens.learner import Extra
from tollbridge.tokens.media import media_tokens, text_of
from tollbridge.tokens.texts import Texts

_encoder = msgspec.json.Encoder(enc_hook=repr)

# Characters that are counted in a millisecond or so.
_LONG = 10_000


class Content(msgspec.Struct, frozen=True):
    """One message: its text, what its other parts cost by formula, its calls and results, its thinking."""

    text: Vector = ()
    media: int = 0
    calls: int = 0
    thinking: Vector = ()
    thinks: bool = False


class Toolset(msgspec.Struct, frozen=True):
    """Everything a request says besides its messages."""

    text: Vector = ()
    count: int = 0


def compact_json(value: Any) -> str:
    """JSON as it travels. Any value has some: what JSON cannot say is written as Python would."""
    try:
        return _encoder.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return repr(value)


def add(vectors: Iterable[Vector]) -> Vector:
    totals: dict[int, int] = {}
    for vector in vectors:
        for kind, count in vector:
            totals[kind] = totals.get(kind, 0) + count
    return tuple(totals.items())


def read_message(texts: Texts, family: Family, model: str, message: Message) -> Content:
    """Count a message: its content alone, without what surrounds every message."""
    vectors: list[Vector] = []
    thinking: list[Vector] = []
    media = calls = 0
    thinks = False
    for part in message.parts:
        match part:
            case ThinkingPart():
                thinks = True
                thinking.append(texts.vector(family, part.text))
            case ToolCallPart() | ToolResultPart():
                calls += 1
        vectors += [texts.vector(family, text) for text in _texts(part)]
        media += sum(media_tokens(model, data) for data in _data(part))
    if message.name:
        vectors.append(texts.vector(family, message.name))
    return Content(add(vectors), media, calls, add(thinking), thinks)


def _texts(part: Part) -> Iterator[str]:
    """The texts of a part that the model reads; thinking is counted apart."""
    match part:
        case TextPart():
            yield part.text
        case ToolCallPart():
            yield part.name
            yield part.input if isinstance(part.input, str) else compact_json(part.input)
        case ToolResultPart():
            for inner in part.parts:
                yield from _texts(inner)
        case DataPart():
            if (text := text_of(part)) is not None:
                yield text


def long_texts(message: Message) -> Iterator[str]:
    """Those that take a while to count."""
    for part in message.parts:
        for text in (part.text,) if isinstance(part, ThinkingPart) else _texts(part):
            if len(text) > _LONG:
                yield text


def _data(part: Part) -> Iterator[DataPart]:
    match part:
        case DataPart() if text_of(part) is None:
            yield part
        case ToolResultPart():
            for inner in part.parts:
                yield from _data(inner)


def read_toolset(texts: Texts, family: Family, request: ChatRequest) -> Toolset:
    """Count the tools, as the compact JSON they are sent as, and the schema of the answer."""
    written = [
        compact_json({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
        for tool in request.tools
    ]
    if request.output_format is not None:
        written.append(compact_json(request.output_format.schema))
    return Toolset(add(texts.vector(family, text) for text in written), len(request.tools))


def last_word_of_user(messages: Sequence[Message]) -> int:
    """Where the user last spoke: results of tools are not the user's word. -1 where nobody did."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role is Role.USER and not all(isinstance(part, ToolResultPart) for part in message.parts):
            return index
    return -1


class Tally:
    """A sum in the making: text features, other features, and tokens that are known."""

    def __init__(self) -> None:
        self.text: dict[int, float] = {}
        self.extra = [0.0] * len(Extra)
        self.known = 0.0

    def add_text(self, vector: Vector, times: float = 1.0) -> None:
        for kind, count in vector:
            self.text[kind] = self.text.get(kind, 0.0) + times * count

    def add_tools(self, toolset: Toolset, tokens: float, times: float = 1.0) -> None:
        self.extra[Extra.TOOLS_TEXT] += times * tokens
        self.extra[Extra.TOOLS] += times * toolset.count
        self.extra[Extra.TOOLS_PRESENT] += times * bool(toolset.count)

    def texts(self) -> list[tuple[int, float]]:
        return list(self.text.items())

    def extras(self) -> list[tuple[int, float]]:
        return [(feature, amount) for feature, amount in enumerate(self.extra) if amount]
