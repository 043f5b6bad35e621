"""A request, read for counting: the fingerprints of its prefixes and the content of its messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from tollbridge.tokens.features import Vector
from tollbridge.tokens.images import media_tokens, text_of
from tollbridge.tokens.learner import Extra
from tollbridge.tokens.tokenizers import Family, LruCache, TextFeatures, family_of
from tollbridge.types.messages import (
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

# SECTION Fingerprints of everything that reaches the wire: of a message, a tool set, an answer, a prefix.

# Raise it when the same value starts to be sent in other words: what was measured of the old is forgotten.
VERSION = b"1"
SIZE = 16
# Options of a request, wherever they stand in it, that take away from what a model reads of the messages.
_EDITS = frozenset({"context_management", "contextManagement", "truncation"})

# Keys in order: an editor may give the arguments of a call back in another one.
_encoder = msgspec.msgpack.Encoder(enc_hook=repr, order="deterministic")


def fingerprint(*values: Any) -> bytes:
    """A digest of values, whole."""
    try:
        content = _encoder.encode(values)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError, OverflowError):
        # Lone surrogates, keys that are not strings, numbers of more than 64 bits, values that contain
        # themselves: all of it still counts.
        content = repr(values).encode("utf-8", "surrogatepass")
    return sha256(content).digest()[:SIZE]


def toolset_fingerprint(request: ChatRequest) -> bytes:
    """Of everything in a request but its model and messages: tools above all, and the settings."""
    return fingerprint(
        request.tools,
        request.tool_choice,
        request.parallel_tool_calls,
        request.reasoning_effort,
        request.output_format,
        request.extra,
    )


def answer_fingerprint(model: str, parts: Iterable[Part]) -> bytes:
    """Of what an answer says, so that it is known again as history.

    An editor may cut its text elsewhere, trim its ends, and drop the thinking.
    """
    said: list[str] = []
    calls: list[tuple[str, str, Any]] = []
    for part in parts:
        match part:
            case TextPart():
                said.append(part.text)
            case ToolCallPart():
                calls.append((part.call_id, part.name, part.input))
            case _:
                continue
    return fingerprint(b"answer", VERSION, model, "".join(said).strip(), calls)


def message_key(model: str, message: bytes) -> bytes:
    """Of a message as one model counts it."""
    return sha256(b"message" + VERSION + model.encode("utf-8", "surrogatepass") + message).digest()[:SIZE]


def editing_fingerprint(request: ChatRequest) -> bytes:
    """Of the options by which a model reads less than it is sent; empty where it reads everything."""
    found = list(_editing(request.extra))
    return fingerprint(found) if found else b""


def _editing(value: object) -> Iterator[tuple[str, Any]]:
    for name, each in value.items() if isinstance(value, Mapping) else ():
        if name in _EDITS:
            yield name, each
        else:
            yield from _editing(each)


def chain(model: str, messages: Sequence[bytes], editing: bytes = b"") -> list[bytes]:
    """One fingerprint for every prefix of the messages, the shortest first. What a prefix came to holds for
    one model, and for one way of `editing` it."""
    link = sha256(VERSION + model.encode("utf-8", "surrogatepass") + editing).digest()[:SIZE]
    links = []
    for message in messages:
        link = sha256(link + message).digest()[:SIZE]
        links.append(link)
    return links


# SECTION What parts, messages and tools consist of, in the features that are priced.

_json_encoder = msgspec.json.Encoder(enc_hook=repr)

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
        return _json_encoder.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return repr(value)


def add(vectors: Iterable[Vector]) -> Vector:
    totals: dict[int, int] = {}
    for vector in vectors:
        for kind, count in vector:
            totals[kind] = totals.get(kind, 0) + count
    return tuple(totals.items())


def read_message(texts: TextFeatures, family: Family, model: str, message: Message) -> Content:
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


def read_toolset(texts: TextFeatures, family: Family, request: ChatRequest) -> Toolset:
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


class FeatureSum:
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


# SECTION A request, read for counting: the fingerprints of its prefixes and the content of its messages.


class Line(msgspec.Struct, frozen=True):
    """One message: its content, and the keys under which its real tokens may be known."""

    content: Content
    key: bytes
    answer: bytes | None


class Prompt(msgspec.Struct, frozen=True):
    """`links` has a fingerprint for every prefix; `spoken` is where the user spoke last."""

    model: str
    family: Family
    lines: Sequence[Line]
    links: Sequence[bytes]
    toolset_key: bytes
    toolset: Toolset
    spoken: int


class Reader:
    """Reads requests. A message or tool set met again is not counted again."""

    def __init__(self) -> None:
        self.texts = TextFeatures()
        self._lines: LruCache[tuple[str, bytes], Line] = LruCache(20_000)
        self._toolsets: LruCache[tuple[str, bytes], Toolset] = LruCache(200)

    def read(self, request: ChatRequest) -> Prompt:
        model, family = request.model, family_of(request.model)
        digests = [fingerprint(message) for message in request.messages]
        toolset_key = toolset_fingerprint(request)
        toolset = self._toolsets.get((family.name, toolset_key))
        if toolset is None:
            toolset = read_toolset(self.texts, family, request)
            self._toolsets.put((family.name, toolset_key), toolset)
        return Prompt(
            model=model,
            family=family,
            lines=[
                self._line(model, family, message, digest)
                for message, digest in zip(request.messages, digests, strict=True)
            ],
            links=chain(model, digests, editing_fingerprint(request)),
            toolset_key=toolset_key,
            toolset=toolset,
            spoken=last_word_of_user(request.messages),
        )

    def read_line(self, model: str, message: Message) -> Line:
        return self._line(model, family_of(model), message, fingerprint(message))

    def _line(self, model: str, family: Family, message: Message, digest: bytes) -> Line:
        line = self._lines.get((model, digest))
        if line is None:
            line = Line(
                content=read_message(self.texts, family, model, message),
                key=message_key(model, digest),
                answer=answer_fingerprint(model, message.parts) if message.role is Role.ASSISTANT else None,
            )
            self._lines.put((model, digest), line)
        return line
