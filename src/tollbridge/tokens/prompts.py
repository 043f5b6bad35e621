"""Read a request for counting: fingerprints of its prefixes, and the token features of its messages.

Fingerprints are digests of everything that is sent: of a message, a tool set, an answer, or a prefix of the
conversation. The ledger uses them as keys, so that it stores no text. `Reader.read` turns a request into a
`Prompt`, with the fingerprints and the features of all its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from tollbridge.tokens.features import TokenTable, Vector, add_vectors
from tollbridge.tokens.limits import LIMITS
from tollbridge.tokens.media import media_tokens, text_of
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

# --- Fingerprints ---

# Increase it when the encoding of the same value on the wire changes: old measurements are then ignored.
VERSION = b"1"
SIZE = 16
# Request options, at any depth, that make the model read less than the messages that were sent.
_EDITING_OPTIONS = frozenset({"context_management", "contextManagement", "truncation"})
# Options, at any depth, whose content reaches the prompt. Others, such as routing and ids, do not change the
# count.
_PROMPT_OPTIONS = _EDITING_OPTIONS.union(
    "tools functions mcp_servers mcpServers plugins web_search_options search_parameters container documents "
    "instructions system prompt chat_template chat_template_kwargs text response_format responseFormat "
    "output_config outputConfig reasoning reasoningEffort effort thinking thinkingConfig betas".split()
)

# Sorted keys: an editor can return the arguments of a tool call in another order.
_encoder = msgspec.msgpack.Encoder(enc_hook=repr, order="deterministic")


def serialize(*values: Any) -> bytes:
    """Encode values for a digest. Equal values have equal encodings."""
    try:
        return _encoder.encode(values)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError, OverflowError):
        # Lone surrogates, keys that are not strings, integers of more than 64 bits, recursive values: these
        # need a fingerprint too.
        return repr(values).encode("utf-8", "surrogatepass")


def fingerprint(*values: Any) -> bytes:
    """Return a digest of the values."""
    return sha256(serialize(*values)).digest()[:SIZE]


def toolset_fingerprint(request: ChatRequest) -> bytes:
    """Return the fingerprint of what reaches the prompt besides the messages: tools and some options."""
    return fingerprint(
        request.tools,
        request.tool_choice,
        request.parallel_tool_calls,
        request.reasoning_effort,
        request.output_format,
        list(_find_options(request.extra, _PROMPT_OPTIONS)),
    )


def answer_fingerprint(model: str, parts: Sequence[Part]) -> bytes:
    """Return the fingerprint of an answer, by which it is recognized when it comes back as history.

    It covers only text and tool calls: an editor can split the text differently, strip whitespace at its
    ends, and drop the reasoning.
    """
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    calls = [(part.call_id, part.name, part.input) for part in parts if isinstance(part, ToolCallPart)]
    return fingerprint(b"answer", VERSION, model, text.strip(), calls)


def message_key(model: str, digest: bytes) -> bytes:
    """Return the key of a message (or tool set) with this fingerprint, as counted by one model."""
    return sha256(b"message" + VERSION + model.encode("utf-8", "surrogatepass") + digest).digest()[:SIZE]


def editing_fingerprint(request: ChatRequest) -> bytes:
    """Return the fingerprint of the options that remove messages from the prompt; empty without any."""
    options = list(_find_options(request.extra, _EDITING_OPTIONS))
    return fingerprint(options) if options else b""


def _find_options(value: object, names: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield the options with these names in a JSON object, at any depth."""
    for name, option in value.items() if isinstance(value, Mapping) else ():
        if name in names:
            yield name, option
        else:
            yield from _find_options(option, names)


def prefix_fingerprints(model: str, digests: Sequence[bytes], editing: bytes = b"") -> list[bytes]:
    """Return one fingerprint for every prefix of a conversation, the shortest first.

    Args:
        model: The model. The same prefix has another token count with another model.
        editing: The fingerprint of the options that remove messages from the prompt.
    """
    digest = sha256(VERSION + model.encode("utf-8", "surrogatepass") + editing).digest()[:SIZE]
    prefixes = []
    for message in digests:
        digest = sha256(digest + message).digest()[:SIZE]
        prefixes.append(digest)
    return prefixes


# --- Features of messages and tools ---

_json_encoder = msgspec.json.Encoder(enc_hook=repr)


class Content(msgspec.Struct, frozen=True):
    """The features of one message.

    Attributes:
        text: Token features of its text, tool calls and tool results.
        media: Tokens of its other parts by the provider's formulas.
        calls: Number of tool calls and tool results.
        thinking: Token features of its reasoning.
        has_thinking: Whether it has a reasoning part, which can be empty.
    """

    text: Vector = ()
    media: int = 0
    calls: int = 0
    thinking: Vector = ()
    has_thinking: bool = False


class Toolset(msgspec.Struct, frozen=True):
    """The features of everything in a request except its messages: tools and output schema."""

    text: Vector = ()
    count: int = 0


def compact_json(value: Any) -> str:
    """Encode a value as the compact JSON that is sent, or as its `repr` if it is not JSON serializable."""
    try:
        return _json_encoder.encode(value).decode()
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return repr(value)


def read_message(texts: TextFeatures, family: Family, model: str, message: Message) -> Content:
    """Count the content of a message, without the overhead per message."""
    vectors: list[Vector] = []
    thinking: list[Vector] = []
    media = calls = 0
    has_thinking = False
    for part in message.parts:
        match part:
            case ThinkingPart():
                has_thinking = True
                thinking.append(texts.vector(family, part.text))
            case ToolCallPart() | ToolResultPart():
                calls += 1
        vectors += [texts.vector(family, text) for text in _texts(part)]
        media += sum(media_tokens(model, data) for data in _media(part))
    if message.name:
        vectors.append(texts.vector(family, message.name))
    return Content(add_vectors(vectors), media, calls, add_vectors(thinking), has_thinking)


def _texts(part: Part) -> Iterator[str]:
    """Yield the texts of a part that the model reads, except reasoning, which is counted separately."""
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


def long_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the texts of messages that are slow to count."""
    for message in messages:
        for part in message.parts:
            for text in (part.text,) if isinstance(part, ThinkingPart) else _texts(part):
                if len(text) > LIMITS.long_text:
                    yield text


def _media(part: Part) -> Iterator[DataPart]:
    match part:
        case DataPart() if text_of(part) is None:
            yield part
        case ToolResultPart():
            for inner in part.parts:
                yield from _media(inner)


def read_toolset(texts: TextFeatures, family: Family, request: ChatRequest) -> Toolset:
    """Count the tools, as the compact JSON they are sent as, and the output schema."""
    schemas = [
        compact_json({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
        for tool in request.tools
    ]
    if request.output_format is not None:
        schemas.append(compact_json(request.output_format.schema))
    return Toolset(add_vectors(texts.vector(family, text) for text in schemas), len(request.tools))


def find_last_user_message(messages: Sequence[Message]) -> int:
    """Return the index of the last user message that is more than tool results, or -1."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role is Role.USER and not all(isinstance(part, ToolResultPart) for part in message.parts):
            return index
    return -1


class CountedMessage(msgspec.Struct, frozen=True):
    """One message: its features, and the keys under which its tokens may have been measured.

    `key` identifies it as input; `answer_key` as an earlier answer (`None` unless the role is assistant).
    """

    content: Content
    key: bytes
    answer_key: bytes | None


class Prompt(msgspec.Struct, frozen=True):
    """A request as the ledger needs it.

    `provider` is who serves the model behind the gateway, if that is known, and `scope` names both in keys.
    `prefix_keys` has a fingerprint for every prefix of `messages`; `last_user_index` is the index of the last
    user message. `is_edited` says whether the request asks the server to remove old messages.
    """

    model: str
    provider: str
    scope: str
    family: Family
    messages: Sequence[CountedMessage]
    prefix_keys: Sequence[bytes]
    toolset_key: bytes
    toolset: Toolset
    last_user_index: int
    is_edited: bool


class Reader:
    """Turns requests into prompts. Features of messages and tool sets are cached."""

    def __init__(self, table: TokenTable | None = None) -> None:
        self.texts = TextFeatures(table)
        self._messages: LruCache[tuple[str, bytes], CountedMessage] = LruCache(LIMITS.messages)
        self._toolsets: LruCache[tuple[str, bytes], Toolset] = LruCache(LIMITS.toolsets)

    def read(self, request: ChatRequest, provider: str = "") -> Prompt:
        model, family = request.model, family_of(request.model)
        scope, editing = scope_of(model, provider), editing_fingerprint(request)
        digests = [fingerprint(message) for message in request.messages]
        toolset_key = toolset_fingerprint(request)
        toolset = self._toolsets.get((family.name, toolset_key))
        if toolset is None:
            toolset = read_toolset(self.texts, family, request)
            self._toolsets.put((family.name, toolset_key), toolset)
        return Prompt(
            model=model,
            provider=provider,
            scope=scope,
            family=family,
            messages=[
                self._count(scope, model, family, message, digest)
                for message, digest in zip(request.messages, digests, strict=True)
            ],
            prefix_keys=prefix_fingerprints(scope, digests, editing),
            toolset_key=toolset_key,
            toolset=toolset,
            last_user_index=find_last_user_message(request.messages),
            is_edited=bool(editing),
        )

    def read_message(self, model: str, message: Message, provider: str = "") -> CountedMessage:
        scope = scope_of(model, provider)
        return self._count(scope, model, family_of(model), message, fingerprint(message))

    def _count(
        self, scope: str, model: str, family: Family, message: Message, digest: bytes
    ) -> CountedMessage:
        counted = self._messages.get((scope, digest))
        if counted is None:
            is_answer = message.role is Role.ASSISTANT
            counted = CountedMessage(
                content=read_message(self.texts, family, model, message),
                key=message_key(scope, digest),
                answer_key=answer_fingerprint(scope, message.parts) if is_answer else None,
            )
            self._messages.put((scope, digest), counted)
        return counted


def scope_of(model: str, provider: str) -> str:
    """Return the name of a model as one provider serves it, for keys: providers count differently."""
    return f"{model} via {provider}" if provider else model
