"""The sidecar's own requests and answers as they travel; `docs/protocol.md` explains them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tollbridge.core.addresses import Backend
from tollbridge.core.usage import Usage
from tollbridge.editors.vscode import wire as vscode
from tollbridge.editors.vscode.wire import Shape

if TYPE_CHECKING:
    from tollbridge.tokens import Accuracy as Measured

PROTOCOL_VERSION = 1


class Timeouts(Shape, frozen=True):
    """Seconds; what is left out is the client's own default."""

    connect: float | None = None
    idle: float | None = None
    total: float | None = None


class Settings(Shape, frozen=True):
    """What the environment and the settings file say outranks it. `models` is spelled as in the file."""

    proxy: str | None = None
    allow_http: bool | None = None
    timeouts: Timeouts = Timeouts()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    favourites: tuple[str, ...] = ()
    models: Mapping[str, Any] = {}
    context_management: bool | None = None
    record: str | None = None
    record_redact: bool | None = None
    count_at_gateway: bool | None = None


class Client(Shape, frozen=True):
    name: str
    version: str | None = None


class Initialize(Shape, frozen=True):
    protocol_version: int
    client: Client | None = None
    settings: Settings = Settings()


class Server(Shape, frozen=True):
    name: str
    version: str


class Initialized(Shape, frozen=True):
    protocol_version: int
    server: Server
    max_frame_bytes: int


class Account(Shape, frozen=True):
    """Whom to ask and with which key. It comes with every request and is kept nowhere."""

    base_url: str
    api_key: str | None = None
    backend: Backend = "openresponses"

    def __repr__(self) -> str:
        return f"Account({self.base_url!r})"


class Models(Shape, frozen=True):
    account: Account
    refresh: bool = False


class ModelList(Shape, frozen=True):
    models: list[vscode.ModelInfo]


class Chat(vscode.Chat, frozen=True, kw_only=True):
    account: Account
    progress_token: int | str | None = None


class Tokens(Shape, frozen=True):
    """Unknown is left out; zero is a measurement."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    @classmethod
    def of(cls, usage: Usage | None) -> Tokens | None:
        return cls.sum(usage) if usage is not None and usage.known else None

    @classmethod
    def sum(cls, usage: Usage) -> Tokens:
        """Also of nothing."""
        return cls(
            usage.input_tokens,
            usage.output_tokens,
            usage.total_tokens,
            usage.cached_tokens,
            usage.reasoning_tokens,
        )


class ChatResult(Shape, frozen=True, kw_only=True):
    """`usage` is what the turn cost; `context` what now fills the window: less, after several steps."""

    finish_reason: str | None = None
    usage: Tokens | None = None
    context: Tokens | None = None
    response_id: str | None = None
    dropped: Mapping[str, int] = {}
    changes: tuple[str, ...] = ()
    counts: Mapping[str, int] = {}
    warning: str | None = None
    first_seconds: float | None = None
    seconds: float
    # Another number than last time: what was counted before may now be counted otherwise.
    lesson: int


class Progress(Shape, frozen=True):
    token: int | str
    value: Mapping[str, list[vscode.Part]]


class Count(Shape, frozen=True):
    model: str
    items: list[str | vscode.Message]


class Counts(Shape, frozen=True):
    counts: list[int]


class ModelTotals(Shape, frozen=True, kw_only=True):
    """What one model did since the sidecar started; requests without usage are counted and cost unknown."""

    model: str
    requests: int
    failures: int
    usage: Tokens


class Accuracy(Shape, frozen=True, kw_only=True):
    """How right the estimates of a model's prompts were: errors as shares of the truth."""

    model: str
    requests: int
    exact: int
    median: float
    p95: float
    worst_under: float
    # The same, had nothing been learned.
    plain_median: float
    plain_p95: float

    @classmethod
    def of(cls, measured: Measured) -> Accuracy:
        return cls(**{name: getattr(measured, name) for name in cls.__struct_fields__})


class Totals(Shape, frozen=True):
    models: list[ModelTotals]
    accuracy: list[Accuracy]


class Status(Shape, frozen=True):
    server: Server
    protocol_version: int
    python: str
    process_id: int
    uptime_seconds: float
    pending: int
    counting: bool
    accuracy: tuple[Accuracy, ...] = ()


class Cancel(Shape, frozen=True):
    id: int | str
