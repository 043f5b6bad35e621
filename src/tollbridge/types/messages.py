"""Messages made of parts, the request that contains them, and the metadata of reasoning parts."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from tollbridge.types.errors import RequestError
from tollbridge.types.quirks import Quirks, ReasoningShape
from tollbridge.types.text import read_json, write_json


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    text: str


class ThinkingPart(msgspec.Struct, frozen=True, tag="thinking"):
    """A model's reasoning. `metadata` is opaque and is sent back to that model unchanged."""

    text: str
    id: str | None = None
    metadata: Mapping[str, Any] | None = None


class ToolCallPart(msgspec.Struct, frozen=True, tag="tool_call", repr_omit_defaults=True):
    """A model's tool call.

    `input` is the JSON value of the arguments, usually an object. `metadata` is opaque, as in `ThinkingPart`:
    the model needs it to recognize its own call.
    """

    call_id: str
    name: str
    input: Any
    metadata: Mapping[str, Any] | None = None


class DataPart(msgspec.Struct, frozen=True, tag="data"):
    """An image or another file."""

    data: bytes
    mime: str
    name: str | None = None


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result"):
    """The result of a tool call. `parts` can be a string or an iterable of strings, texts and files."""

    call_id: str
    parts: tuple[TextPart | DataPart, ...] = ()
    is_error: bool = False

    if TYPE_CHECKING:

        def __init__(
            self, call_id: str, parts: str | Iterable[TextPart | DataPart | str] = (), is_error: bool = False
        ) -> None: ...

    def __post_init__(self) -> None:
        _convert_parts(self, (TextPart, DataPart))


Part = TextPart | ThinkingPart | ToolCallPart | ToolResultPart | DataPart


class Message(msgspec.Struct, frozen=True):
    """One message of the system, the user or the assistant.

    Args:
        role: A `Role` or its name.
        parts: A string, or any iterable (list, tuple) of strings and parts. It is stored as a tuple.
        name: The name of the participant, if there are several.

    Raises:
        RequestError: `parts` contains something else, or the role is unknown.
    """

    role: Role
    parts: tuple[Part, ...] = ()
    name: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self, role: Role | str, parts: str | Iterable[Part | str] = (), name: str | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.role, Role):
            try:
                msgspec.structs.force_setattr(self, "role", Role(self.role))
            except ValueError:
                raise RequestError(
                    f"Unknown role {self.role!r}. Valid roles: {', '.join(Role)}. "
                    "Send tool results as ToolResultPart in a user message."
                ) from None
        _convert_parts(self, get_args(Part))


def _convert_parts(owner: Message | ToolResultPart, types: tuple[type, ...]) -> None:
    """Store the parts of a message or a tool result as a tuple of parts, with strings as `TextPart`."""
    value: Any = owner.parts
    if type(value) is tuple and all(isinstance(part, types) for part in value):
        return
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        value = tuple(TextPart(part) if isinstance(part, str) else part for part in value)
    _check_items(owner, "parts", value, types, "strings and Part objects")
    msgspec.structs.force_setattr(owner, "parts", value)


def _check_items(owner: object, field: str, value: object, types: tuple[type, ...], accepted: str) -> None:
    """Raise `RequestError` unless `value` is a tuple of these types."""
    wrong = [value]
    if isinstance(value, tuple):
        wrong = [item for item in value if not isinstance(item, types)]
    if wrong:
        name = f"{type(owner).__name__}.{field}"
        raise RequestError(f"{name} accepts {accepted}, not {type(wrong[0]).__name__}.")


class Tool(msgspec.Struct, frozen=True):
    """A tool that the model may call. `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None


class NamedTool(msgspec.Struct, frozen=True):
    """The name of the tool that the model must call."""

    name: str


ToolChoice = Literal["auto", "required", "none"] | NamedTool


class OutputFormat(msgspec.Struct, frozen=True):
    """A JSON Schema that the text of the answer must match."""

    name: str
    schema: Mapping[str, Any]
    description: str | None = None
    strict: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for one answer. Fields that are `None` or empty are not sent.

    `messages` and `tools` can be lists; they are stored as tuples.

    Attributes:
        extra: Protocol fields that this type does not name (`providerOptions`, `service_tier`…), sent as they
            are.
        cache_points: Where the caller wants the prompt to be cached: the options of each breakpoint, by
            `part_digest` of the part that ends there. Protocols without breakpoints ignore it.
        cache_prompt: Whether to ask the server to cache the prompt, in the way that `quirks` allows.
        conversation: Identifies the conversation that the request belongs to, if the caller says which. It is
            never sent as it is.
        reasons: Whether the model is known to reason. If so, the request asks for the signatures of its
            reasoning.
        quirks: The protocol features that the server does not support. The request is encoded without them.

    Raises:
        RequestError: `messages` or `tools` contains something else.
    """

    model: str
    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    output_format: OutputFormat | None = None
    metadata: Mapping[str, str] | None = None
    extra: Mapping[str, Any] | None = None
    cache_points: Mapping[str, Mapping[str, Any]] | None = None
    cache_prompt: bool = False
    conversation: str | None = None
    reasons: bool = False
    quirks: Quirks | None = None

    def asks_for(self, field: str) -> bool:
        """Return whether prompt caching is requested by this field."""
        quirks = self.quirks
        return self.cache_prompt and quirks is not None and field in quirks.cache_fields - quirks.without

    @property
    def cache_key(self) -> str | None:
        """The key by which a provider recognizes the conversation: a hash, at most 64 characters long."""
        if self.conversation is None:
            return None
        from hashlib import sha256

        return sha256(self.conversation.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def __post_init__(self) -> None:
        if not isinstance(self.model, str):
            raise RequestError(f"ChatRequest.model must be a string, not {type(self.model).__name__}.")
        for field, type_ in (("messages", Message), ("tools", Tool)):
            value: Any = getattr(self, field)
            if not isinstance(value, tuple | str | bytes | Mapping) and isinstance(value, Iterable):
                value = tuple(value)
                msgspec.structs.force_setattr(self, field, value)
            _check_items(self, field, value, (type_,), f"a sequence of {type_.__name__} objects")


# The position of a part: the index of its message, and its index in that message.
PartIndex = tuple[int, int]


def match_results(messages: Sequence[Message]) -> dict[PartIndex, PartIndex]:
    """Match tool results to their calls.

    Ids can repeat (some servers count from `call_0` in every answer), and results can be missing or precede
    their calls. A result belongs to the first unanswered call with its id, in the latest message that
    has one. A result without an earlier call belongs to a later call that has no other result.

    Returns:
        The position of the result, by the position of the call. Calls without a result are absent.
    """
    unanswered: dict[str, list[deque[PartIndex]]] = {}  # one queue per message
    early_results: dict[str, list[PartIndex]] = {}
    matches: dict[PartIndex, PartIndex] = {}
    for message_index, message in enumerate(messages):
        for part_index, part in enumerate(message.parts):
            position = message_index, part_index
            if isinstance(part, ToolCallPart):
                queues = unanswered.setdefault(part.call_id, [])
                if not queues or queues[-1][0][0] != message_index:
                    queues.append(deque())
                queues[-1].append(position)
            elif isinstance(part, ToolResultPart):
                if queues := unanswered.get(part.call_id, []):
                    matches[queues[-1].popleft()] = position
                    if not queues[-1]:
                        queues.pop()
                else:
                    early_results.setdefault(part.call_id, []).append(position)
    for call_id, queues in unanswered.items():
        calls = chain.from_iterable(queues)
        matches.update(zip(calls, early_results.get(call_id, ()), strict=False))
    return matches


# --- Reasoning metadata: the proof of a reasoning block, and the model and gateway it is valid for ---
#
# A proof is what a provider returns with reasoning and requires back unchanged: a signature or encrypted
# content. It is valid only for the model at the gateway that issued it.

# The key that Tollbridge adds to the metadata of a thinking part. All other keys belong to the gateway and
# are sent back unchanged.
METADATA_KEY = "_tollbridge"
# The mime type of the data part that holds all reasoning of an answer. Editors preserve data parts better
# than thinking parts.
PACK_MIME = "application/vnd.tollbridge.reasoning+json"
# The start of metadata that a caller of another protocol stores as one string.
_METADATA_PREFIX = "tollbridge:"


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model and the gateway that produced reasoning. `gateway` is a digest of the base URL."""

    model: str
    gateway: str

    @classmethod
    def of(cls, model: str, base_url: str) -> Origin:
        return cls(model, _digest(base_url, 6))


class ReasoningMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value under `METADATA_KEY` in metadata: the origin of the reasoning.

    Attributes:
        call: The id of the tool call that the proof belongs to, if it does not belong to reasoning.
        plain: Whether the reasoning is text without a proof.
        shape: The field that held the text of the reasoning, if it was not the summary.
    """

    model: str = ""
    gateway: str = ""
    call: str | None = None
    plain: bool = False
    shape: ReasoningShape | None = None

    @property
    def origin(self) -> Origin:
        return Origin(self.model, self.gateway)


class ReasoningBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """One block of reasoning and its position in the answer.

    Attributes:
        proof: The metadata to send back.
        before: The id of the tool call that follows the block, if one does.
        after: The number of characters of the answer that precede the block, if known.
        shape: The field that held the text, if it was not the summary.
    """

    text: str = ""
    id: str | None = None
    proof: Mapping[str, Any] | None = None
    before: str | None = None
    after: int | None = None
    shape: ReasoningShape | None = None


class ReasoningPack(msgspec.Struct, frozen=True, omit_defaults=True):
    """All reasoning of one answer.

    Attributes:
        gateway: The digest of the gateway's base URL.
        calls: The metadata of tool calls, by call id.
        text_length: The number of characters of the answer's text.
    """

    model: str
    gateway: str
    blocks: tuple[ReasoningBlock, ...] = ()
    calls: Mapping[str, Mapping[str, Any]] = {}
    text_length: int = 0

    @property
    def origin(self) -> Origin:
        return Origin(self.model, self.gateway)


def add_origin(
    origin: Origin | None,
    proof: Mapping[str, Any] | None,
    *,
    call: str | None = None,
    shape: ReasoningShape | None = None,
) -> dict[str, Any]:
    """Return the gateway's own metadata with the origin added, or only the shape if the origin is unknown.

    Without a proof, only the text of the reasoning is sent back. `call` is the id of the tool call that the
    proof belongs to.
    """
    plain = origin is not None and not proof and call is None
    model, gateway = (origin.model, origin.gateway) if origin is not None else ("", "")
    return {
        **(proof or {}),
        METADATA_KEY: msgspec.to_builtins(ReasoningMetadata(model, gateway, call, plain, shape)),
    }


def split_metadata(metadata: Mapping[str, Any] | None) -> tuple[ReasoningMetadata | None, dict[str, Any]]:
    """Split metadata into the origin that `add_origin` added and the gateway's own proof."""
    proof = dict(metadata or {})
    try:
        return msgspec.convert(proof.pop(METADATA_KEY, None), ReasoningMetadata), proof
    except msgspec.ValidationError:
        return None, proof


def encode_metadata(metadata: Mapping[str, Any]) -> str:
    """Return metadata as an opaque string, for callers that return a signature or encrypted content."""
    data = write_json(metadata).encode("utf-8", "surrogatepass")
    return _METADATA_PREFIX + urlsafe_b64encode(data).decode()


def decode_metadata(text: object) -> dict[str, Any] | None:
    """Return the metadata that `encode_metadata` wrote; `None` if another server wrote the text."""
    if not isinstance(text, str) or not text.startswith(_METADATA_PREFIX):
        return None
    try:
        value = read_json(b64decode(text.removeprefix(_METADATA_PREFIX), b"-_", validate=True))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def digest(proof: Mapping[str, Any]) -> str:
    """Return a short digest that identifies a proof."""
    return _digest(write_json(proof), 12)


def part_digest(part: Part) -> str:
    """Return a short digest that identifies the content of a part."""
    return _digest(write_json(part), 12)


def _digest(text: str, size: int) -> str:
    # Imported here: OpenSSL takes 3 ms to load, and the sidecar starts without it.
    from hashlib import blake2s

    return blake2s(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def is_marker(part: object) -> bool:
    """Return whether a part is a reasoning pack, which only Tollbridge reads."""
    return isinstance(part, DataPart) and part.mime == PACK_MIME


def without_markers(parts: Iterable[Part]) -> list[Part]:
    return [part for part in parts if not (isinstance(part, DataPart) and part.mime == PACK_MIME)]


def read_reasoning_pack(data: bytes) -> ReasoningPack | None:
    """Decode a reasoning pack. Return `None` if the data is invalid."""
    try:
        return msgspec.json.decode(data, type=ReasoningPack)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
