"""The wire format of editors: VS Code's messages, parts and models, and the sidecar's parameters and results.

`docs/protocol.md` documents it. `read_parameters` decodes the parameters of a JSON-RPC request. It accepts
parts of unknown types, `null` for an omitted field, and `[]` for an empty object, which is how Lua and PHP
encode it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec

from tollbridge.types.text import limit_text_depth
from tollbridge.types.urls import Backend

if TYPE_CHECKING:
    from tollbridge.storage.reports import UsageTotals
    from tollbridge.tokens.prompt_cache import CacheReport
    from tollbridge.tokens.records import Accuracy as Measured
    from tollbridge.types.events import Cost, Usage

# --- VS Code's messages, parts and models ---

# Values of LanguageModelChatMessageRole. SYSTEM is not in the public API, but VS Code sends it.
USER, ASSISTANT, SYSTEM = 1, 2, 3
# Values of LanguageModelChatToolMode.
AUTO, REQUIRED = 1, 2

# The mime type of the data part with the usage of an answer.
USAGE_MIME = "usage"
# The mime type of the data part that VS Code stores for a provider and sends back with the conversation.
MARKER_MIME = "stateful_marker"
# The id of the thinking parts in which the extension says why an answer has not begun.
WAIT_ID = "tollbridge.wait"
# The effort in the model picker that leaves the choice to the model: nothing is sent.
DEFAULT_EFFORT = "default"


class WireStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the structs: field names are in camel case, default values are omitted."""


class _Part(WireStruct, frozen=True, tag_field="type"):
    pass


class Text(_Part, frozen=True, tag="text"):
    value: str


class Thinking(_Part, frozen=True, tag="thinking"):
    value: str | list[str]
    id: str | None = None
    metadata: dict[str, Any] | None = None


class ToolCall(_Part, frozen=True, tag="toolCall"):
    call_id: str
    name: str
    input: Any = None


class Data(_Part, frozen=True, tag="data"):
    """Bytes, encoded as base64 in JSON."""

    mime_type: str
    data: bytes


class PromptTsx(_Part, frozen=True, tag="promptTsx"):
    """A rendered prompt-tsx tree that was not converted to text."""

    value: Any = None


class Unknown(_Part, frozen=True, tag="unknown"):
    """A part of a class that the extension does not know. `name` is the name of the class."""

    name: str = ""


class ToolResult(_Part, frozen=True, tag="toolResult"):
    call_id: str
    content: list[Text | Data | PromptTsx | Unknown] = []
    is_error: bool = False


Part = Text | Thinking | ToolCall | ToolResult | Data | PromptTsx | Unknown


class Message(WireStruct, frozen=True):
    role: int
    content: list[Part] = []
    name: str | None = None


class Tool(WireStruct, frozen=True):
    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None


class Chat(WireStruct, frozen=True):
    """The arguments of `provideLanguageModelChatResponse`.

    The last three say what the request belongs to. VS Code passes them in `model_options` instead.
    """

    model: str
    messages: list[Message]
    tools: list[Tool] = []
    tool_mode: int = AUTO
    model_options: Mapping[str, Any] = {}
    model_configuration: Mapping[str, Any] = {}
    conversation: str | None = None


class ModelCapabilities(WireStruct, frozen=True):
    """Capabilities of a model. Both are required: without them VS Code drops all models of the vendor."""

    tool_calling: bool
    image_input: bool


class Effort(WireStruct, frozen=True):
    """The schema of the reasoning effort. The group `navigation` shows it next to the model name."""

    type: str
    title: str
    group: str
    enum: tuple[str, ...]
    enum_item_labels: tuple[str, ...]
    enum_descriptions: tuple[str, ...]
    default: str | None = None


class ContextSize(WireStruct, frozen=True):
    """The schema of the context size in tokens. The group `tokens` shows it next to the model name."""

    type: str
    title: str
    group: str
    enum: tuple[int, ...]
    enum_item_labels: tuple[str, ...]
    enum_descriptions: tuple[str, ...]
    default: int


class ConfigurationProperties(WireStruct, frozen=True):
    reasoning_effort: Effort | None = None
    context_size: ContextSize | None = None


class Configuration(WireStruct, frozen=True):
    properties: ConfigurationProperties


class ThemeIcon(WireStruct, frozen=True):
    """One of VS Code's icons."""

    id: str


class ModelInfo(WireStruct, frozen=True, kw_only=True):
    """A LanguageModelChatInformation, and `model`, the id of the model at the gateway.

    The costs are in VS Code's credits per million tokens; `pricing` has the dollars, as a text. The keys of
    `warning_text` and `info_text` are names of our choice; VS Code shows the texts.
    """

    id: str
    model: str
    name: str
    family: str
    version: str
    max_input_tokens: int
    max_output_tokens: int
    context_window: int
    capabilities: ModelCapabilities
    tooltip: str | None = None
    detail: str | None = None
    input_cost: float | None = None
    output_cost: float | None = None
    cache_cost: float | None = None
    cache_write_cost: float | None = None
    long_context_input_cost: float | None = None
    long_context_output_cost: float | None = None
    long_context_cache_cost: float | None = None
    long_context_cache_write_cost: float | None = None
    pricing: str | None = None
    price_category: str | None = None
    category: str | None = None
    max_context_window_tokens: int | None = None
    warning_text: Mapping[str, str] | None = None
    info_text: Mapping[str, str] | None = None
    status_icon: ThemeIcon | None = None
    configuration_schema: Configuration | None = None


class TokenDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class CreditUsage(msgspec.Struct, frozen=True):
    """VS Code shows the sum over a chat as credits: one is 10⁹ of these, and $0.01."""

    total_nano_aiu: int


class UsageJson(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the `usage` data part. VS Code ignores it unless the first three fields are numbers."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    copilot_usage: CreditUsage | None = None


# --- Request parameters ---

Params = TypeVar("Params")

# The part types in a tool result and in a message.
_RESULT_PARTS = frozenset({"text", "data", "promptTsx", "unknown"})
_PARTS = _RESULT_PARTS | {"thinking", "toolCall", "toolResult"}


class NotUtf8(Exception):
    """Raised when the parameters are not valid UTF-8."""


def read_parameters(raw: msgspec.Raw, shape: type[Params]) -> Params:
    """Decode the parameters of a request.

    Parts of unknown types become `Unknown`. `null` is read as an omitted field and `[]` as an empty object
    where they are not valid themselves.

    Objects and arrays that are nested too deeply are empty.

    Raises:
        msgspec.ValidationError: The parameters do not have this shape.
        NotUtf8: The parameters are not valid UTF-8.
    """
    try:
        try:
            return _decode(raw, shape)
        except RecursionError:  # one tool result or schema must not block the whole conversation
            return _decode(msgspec.Raw(limit_text_depth(bytes(raw))), shape)
    except UnicodeDecodeError as error:
        raise NotUtf8 from error


def _decode(raw: msgspec.Raw, shape: type[Params]) -> Params:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError:
        params = msgspec.json.decode(raw)
    for part in _find_unknown_parts(params):
        name = str(part.get("type", ""))
        part.clear()
        part.update(type="unknown", name=name)
    return msgspec.convert(_adapt(params, msgspec.inspect.type_info(shape)), shape)


def _adapt(value: Any, kind: msgspec.inspect.Type) -> Any:
    """Return the value without optional fields that are `null`, and with `{}` for `[]` where it must be."""
    match kind:
        case msgspec.inspect.UnionType():
            # At most one type of a union is a list; parts are objects that their `type` tells apart.
            kinds = kind.types
            if value == [] and not any(isinstance(member, msgspec.inspect.ListType) for member in kinds):
                return _adapt(value, next(filter(_is_object, kinds), msgspec.inspect.AnyType()))
            chosen = (member for member in kinds if _matches(value, member))
            return _adapt(value, next(chosen, msgspec.inspect.AnyType()))
        case msgspec.inspect.StructType() if value == [] or isinstance(value, dict):
            fields = dict(value)
            for field in kind.fields:
                name = field.encode_name
                if name not in fields:
                    continue
                if fields[name] is None and not field.required:
                    del fields[name]  # every optional field that may be null has null as its default
                else:
                    fields[name] = _adapt(fields[name], field.type)
            return fields
        case msgspec.inspect.DictType() if value == []:
            return {}
        case msgspec.inspect.ListType() if isinstance(value, list):
            return [_adapt(item, kind.item_type) for item in value]
        case _:
            return value


def _is_object(kind: msgspec.inspect.Type) -> bool:
    return isinstance(kind, msgspec.inspect.StructType | msgspec.inspect.DictType)


def _matches(value: Any, kind: msgspec.inspect.Type) -> bool:
    """Return whether this member of a union is meant by a value."""
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(value, dict):
        return kind.tag_field is None or value.get(kind.tag_field) == kind.tag
    return isinstance(kind, msgspec.inspect.ListType) and isinstance(value, list)


def _find_unknown_parts(params: Any) -> Iterator[dict[str, Any]]:
    """Yield the unknown parts in the messages of a chat, or in the items of a token count."""
    for field in ("messages", "items"):
        for message in _get_list(params, field):
            for part in _get_list(message, "content"):
                if _is_unknown(part, _PARTS):
                    yield part
                for inner in _get_list(part, "content"):
                    if _is_unknown(inner, _RESULT_PARTS):
                        yield inner


def _is_unknown(part: Any, known_types: frozenset[str]) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and kind not in known_types


def _get_list(value: Any, field: str) -> list[Any]:
    items = value.get(field) if isinstance(value, dict) else None
    return items if isinstance(items, list) else []


# --- The parameters and results of the sidecar's methods ---

PROTOCOL_VERSION = 1


class EditorTimeouts(WireStruct, frozen=True):
    """Seconds. An omitted value uses the default."""

    connect: float | None = None
    idle: float | None = None
    total: float | None = None


class EditorSettings(WireStruct, frozen=True):
    """The editor's settings. The environment and the settings file override them."""

    proxy: str | None = None
    allow_http: bool | None = None
    timeouts: EditorTimeouts = EditorTimeouts()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    favourites: tuple[str, ...] = ()
    models: Mapping[str, Any] = {}
    context_management: bool | None = None
    record: str | None = None
    record_redact: bool | None = None
    count_at_gateway: bool | None = None
    prompt_caching: bool | None = None
    report_credits: bool = False
    image_folder: str | None = None
    embed_images: bool = False
    budgets: Mapping[str, Any] = {}


class ClientInfo(WireStruct, frozen=True):
    name: str
    version: str | None = None
    id: str | None = None


class InitializeParams(WireStruct, frozen=True):
    protocol_version: int
    client: ClientInfo | None = None
    settings: EditorSettings = EditorSettings()


class ServerInfo(WireStruct, frozen=True):
    name: str
    version: str


class InitializeResult(WireStruct, frozen=True):
    protocol_version: int
    server: ServerInfo
    max_frame_bytes: int


class AccountParams(WireStruct, frozen=True):
    """The gateway and the key of one request. The key is not stored.

    A header's value is a text, or `{"secret": SOURCE}` as in the settings file. `id` distinguishes the
    accounts of an editor. It is the same after a restart and not derived from the key.
    """

    base_url: str
    api_key: str | None = None
    backend: Backend = "openresponses"
    headers: Mapping[str, Any] = {}
    id: str | None = None

    def __repr__(self) -> str:
        return f"Account({self.base_url!r})"


class ModelsParams(WireStruct, frozen=True):
    account: AccountParams
    refresh: bool = False


class ModelsResult(WireStruct, frozen=True):
    models: list[ModelInfo]


class CheckAccountParams(WireStruct, frozen=True):
    account: AccountParams


class CheckAccountResult(WireStruct, frozen=True):
    """What a test of an account found, for the person who types it.

    With the severity `error` the account cannot be used. `base_url` is the one to use: with `/v1`, if only
    that was missing.
    """

    base_url: str
    severity: Literal["error", "warning", "info"]
    message: str


class ChatParams(Chat, frozen=True, kw_only=True):
    account: AccountParams
    progress_token: int | str | None = None
    over_budget: bool = False


class TokenUsage(WireStruct, frozen=True):
    """Token counts. Unknown counts are omitted."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None

    @classmethod
    def of(cls, usage: Usage | None) -> TokenUsage | None:
        return cls.sum(usage) if usage is not None and usage.known else None

    @classmethod
    def sum(cls, usage: Usage) -> TokenUsage:
        """Convert a sum of usage, even if nothing was reported."""
        return cls(
            usage.input_tokens,
            usage.output_tokens,
            usage.total_tokens,
            usage.cached_tokens,
            usage.reasoning_tokens,
            usage.cache_write_tokens,
        )


class TurnCost(WireStruct, frozen=True):
    """The cost of a turn in US dollars, as decimal strings. Unknown values are omitted."""

    charge: Decimal
    source: str
    computed: Decimal | None = None
    billed: Decimal | None = None
    difference: str | None = None

    @classmethod
    def of(cls, cost: Cost) -> TurnCost | None:
        if cost.charge is None or cost.source is None:
            return None
        return cls(cost.charge, cost.source, cost.computed, cost.billed, cost.difference)


class CacheInfo(WireStruct, frozen=True, kw_only=True):
    """What the prompt cache did for a turn. `text` has figures and reason; `cost` is in US dollars."""

    missed: bool
    kind: str
    text: str
    expected: int | None = None
    actual: int | None = None
    cost: str | None = None

    @classmethod
    def of(cls, report: CacheReport | None) -> CacheInfo | None:
        if report is None:
            return None
        return cls(
            missed=report.missed,
            kind=report.kind,
            text=report.sentence,
            expected=report.expected,
            actual=report.actual,
            cost=None if report.cost is None else f"{report.cost:f}",
        )


class ChatResult(WireStruct, frozen=True, kw_only=True):
    """`usage` is that of the whole turn; `context` fills the window now: less after several steps."""

    finish_reason: str | None = None
    usage: TokenUsage | None = None
    context: TokenUsage | None = None
    cost: TurnCost | None = None
    response_id: str | None = None
    dropped: Mapping[str, int] = {}
    changes: tuple[str, ...] = ()
    counts: Mapping[str, int] = {}
    warning: str | None = None
    cache: CacheInfo | None = None
    first_seconds: float | None = None
    seconds: float
    # Changes when texts that were counted before may now have other counts.
    lesson: int


class ProgressParams(WireStruct, frozen=True):
    token: int | str
    value: Mapping[str, list[Part]]


class Wait(WireStruct, frozen=True):
    """Why a turn has no output yet.

    Attributes:
        state: `retry`, before the next attempt, or `answer`, while the gateway is silent.
        seconds: Until the next attempt, or since the last one was sent.
        text: A sentence for users.
        update: Whether this is not worth a new line: only the seconds have changed, or the wait is short.
    """

    state: Literal["retry", "answer"]
    seconds: int
    text: str
    update: bool = False


class WaitParams(WireStruct, frozen=True):
    token: int | str
    value: Wait


class CountParams(WireStruct, frozen=True):
    model: str
    items: list[str | Message]


class CountResult(WireStruct, frozen=True):
    counts: list[int]


class ModelTotals(WireStruct, frozen=True, kw_only=True):
    """The usage of one model since the start. Requests without reported usage are counted too.

    `incomplete` is the number of attempts that may have used tokens which are not in `usage`.
    """

    model: str
    requests: int
    failures: int
    incomplete: int = 0
    usage: TokenUsage


class AccuracyInfo(WireStruct, frozen=True, kw_only=True):
    """How accurate the estimates of a model's prompts were: errors relative to the reported tokens."""

    model: str
    requests: int
    exact: int
    median: float
    p95: float
    worst_under: float
    # The same without calibration.
    plain_median: float
    plain_p95: float

    @classmethod
    def of(cls, measured: Measured) -> AccuracyInfo:
        return cls(**{name: getattr(measured, name) for name in cls.__struct_fields__})


class UsageParams(WireStruct, frozen=True):
    """`conversation` is the one whose requests are added up; by default, that of the last answer."""

    conversation: str | None = None


class Spending(WireStruct, frozen=True):
    """The cost of some requests in US dollars, if it is known; `partial` if that of others is not."""

    requests: int
    cost: Decimal | None = None
    partial: bool = False

    @classmethod
    def of(cls, totals: UsageTotals) -> Spending:
        return cls(totals.requests, totals.cost, totals.cost is not None and bool(totals.unpriced))


class BudgetInfo(WireStruct, frozen=True):
    """A budget and what is spent of it, in US dollars."""

    name: str
    limit: Decimal
    spent: Decimal


class Status(WireStruct, frozen=True):
    """A status bar item: its text, the same for screen readers, and a tooltip in Markdown."""

    text: str
    label: str
    tooltip: str
    warning: bool = False


class UsageResult(WireStruct, frozen=True):
    models: list[ModelTotals]
    accuracy: list[AccuracyInfo]
    today: Spending
    conversation: Spending | None = None
    budgets: tuple[BudgetInfo, ...] = ()
    status: Status | None = None


class UsagePageResult(WireStruct, frozen=True):
    html: str


class UsageReportParams(WireStruct, frozen=True):
    """`revision` is that of the report which the page shows: if nothing changed, only it is returned."""

    days: Annotated[int, msgspec.Meta(ge=1, le=3650)] = 30
    revision: str | None = None


class StatusResult(WireStruct, frozen=True, kw_only=True):
    """The state of the server. A lag is the time by which the event loop is late."""

    server: ServerInfo
    protocol_version: int
    python: str
    process_id: int
    uptime_seconds: float
    pending: int
    turns: int
    paused_turns: int
    queued_bytes: int
    lag_seconds: float
    longest_lag_seconds: float
    counting: bool
    accuracy: tuple[AccuracyInfo, ...] = ()


class CancelParams(WireStruct, frozen=True):
    id: int | str
