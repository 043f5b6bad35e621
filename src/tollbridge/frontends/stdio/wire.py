"""The parameters and results of the sidecar's methods, which `docs/protocol.md` documents."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from tollbridge.frontends.vscode.wire import Chat, Message, ModelInfo, Part, WireStruct
from tollbridge.protocols import DEFAULT_BACKEND, Backend

if TYPE_CHECKING:
    from tollbridge.storage.reports import UsageTotals
    from tollbridge.tokens.prompt_cache import CacheReport
    from tollbridge.types.events import Cost, Usage

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
    backend: Backend = DEFAULT_BACKEND
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
        return cls.copy_of(usage) if usage is not None and usage.known else None


class TurnCost(WireStruct, frozen=True):
    """The cost of a turn in US dollars, as decimal strings. Unknown values are omitted."""

    charge: Decimal
    source: str
    computed: Decimal | None = None
    billed: Decimal | None = None
    difference: str | None = None

    @classmethod
    def of(cls, cost: Cost) -> TurnCost | None:
        return None if cost.charge is None or cost.source is None else cls.copy_of(cost)


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
    counts_revision: int


class ProgressParams(WireStruct, frozen=True):
    token: int | str
    value: Mapping[str, list[Part]]


class Wait(WireStruct, frozen=True):
    """Why a turn has no output yet: before the next attempt (`retry`), or while the gateway is silent.

    `seconds` is the time until the next attempt, or since the last one was sent. An `update` is not worth a
    new line: only the seconds have changed, or the wait is short.
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
