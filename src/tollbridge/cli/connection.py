"""Which gateway a command talks to: the one asked for, the one there is a key for, or one on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, assert_never

import click
import msgspec

from tollbridge.catalog.models import Catalog, Listing, apply_model_settings, filter_models, is_favourite
from tollbridge.cli.errors import ConnectionKind, ExplainedError
from tollbridge.cli.options import ConnectionOptions
from tollbridge.cli.terminal import one_line
from tollbridge.clients.ai_sdk import UiStreamClient
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import (
    CompatMemory,
    LearnedQuirks,
    UnreadableProfile,
    find_quirks,
    known_quirks,
)
from tollbridge.config.accounts import Account, resolve_account
from tollbridge.config.keys import OWN, Key, TokenRefresher, clean_key, find_key
from tollbridge.config.loading import load_settings
from tollbridge.config.paths import catalog_folder
from tollbridge.config.request_options import apply_settings
from tollbridge.config.schema import Settings, http_timeouts
from tollbridge.engine import open_client
from tollbridge.local.process import LocalModel, is_installed
from tollbridge.recorder.recorder import Recorder
from tollbridge.storage.tracker import BillingAccount
from tollbridge.types.errors import BridgeError
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Capabilities, Model
from tollbridge.types.quirks import Quirks
from tollbridge.types.urls import VERCEL_URL

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


# SECTION How far the download of the model is, for the person who waits for it.

_WORDS = "Fetching a small model"


class FetchBar:
    """A bar on a terminal, one line elsewhere, nothing where nothing is fetched."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._told = False

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int) -> None:
        if not self._told:
            self._told = True
            if sys.stderr.isatty():
                self._show(total)
            else:
                click.echo(f"{_WORDS} ({total / 1e6:.0f} MB, once)…", err=True)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal to others; nothing more will be fetched."""
        if self._bar is not None:
            self._bar.stop()

    def _show(self, total: int) -> None:
        # Not at the top: it takes longer to load than most commands to run, and most fetch nothing.
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(_WORDS, total=total)
        self._bar.start()


# SECTION Which gateway a command talks to: the one asked for, the one there is a key for, or one on this machine.

# What is tried of a model that nothing is known of.
_TRIED = {"tools": True, "images": True, "files": True, "reasoning": False}
# Seconds a person waits for a new list where there is an old one.
LIST_PATIENCE = 3.0

Kind = Literal["remote", "local", "embedded", "ui-stream"]


class GatewayChoice(msgspec.Struct, frozen=True):
    """`reason` is told to the person where the choice was not theirs."""

    kind: Kind
    base_url: str = ""
    reason: str = ""


class ModelFacts(msgspec.Struct, frozen=True):
    """Of a model, before a turn: what its server wants, the most input tokens, and what it can do; `None`
    where nobody says."""

    learned: LearnedQuirks
    window: int | None
    abilities: Capabilities | None


def _lessons(catalogue: Catalog, account: str = "") -> CompatMemory:
    """How servers want to be talked to. A file that makes no sense is told once, and stops nobody."""
    told: set[str] = set()

    def quirks(base_url: str, model: str) -> Quirks | None:
        try:
            return find_quirks(base_url, model, owners=catalogue.owners(base_url, account))
        except UnreadableProfile as error:
            if error.message not in told:
                click.echo(one_line(error.message), err=True)
            told.add(error.message)
            return None

    return CompatMemory(quirks)


class Connection(msgspec.Struct, frozen=True):
    """`model` is the one to use where none was asked for; `None` leaves it to the gateway's list.

    `lessons` are what is known of the server: what its profile says, and what was learned since.
    """

    client: GatewayClient
    place: str
    model: str | None = None
    settings: Settings = Settings()
    account: str = ""
    way: ConnectionKind = "openresponses"
    # Whether the place will still be there tomorrow, so that its list of models is worth keeping.
    lasting: bool = False
    lessons: CompatMemory = msgspec.field(default_factory=lambda: _lessons(Catalog()))
    catalogue: Catalog = msgspec.field(default_factory=Catalog)

    @property
    def payer(self) -> BillingAccount:
        """For the ledger."""
        return BillingAccount(self.account, self.client.base_url)

    @property
    def recorder(self) -> Recorder | None:
        """Where turns are recorded, if they are."""
        folder = self.settings.record_folder
        return Recorder(folder, redacted=self.settings.record_redact) if folder else None

    def prepared(self, request: ChatRequest) -> ChatRequest:
        """The request with what the settings add to it."""
        return apply_settings(request, self.settings, self.client.base_url)

    def known(self, model: str) -> ModelFacts:
        """By the last list and by the settings. Where neither says what it can do, everything is tried, and a
        refusal tells."""
        found = self.catalogue.find(self.client, model, account=self.account) or Model(id=model)
        told = apply_model_settings(found, self.settings)
        if found.tags | found.parameters:
            abilities: Capabilities | None = told.capabilities
        else:
            said = {**_TRIED, **told.told}
            abilities = Capabilities(**said) if said != _TRIED else None
        return ModelFacts(
            self.lessons.recall(self.client.base_url, model),
            told.limits.input if told.context_window else None,
            abilities,
        )

    async def list_models(self, *, refresh: bool = False) -> Listing:
        """The models of the gateway; a list on disk that is stale is served where the gateway is slow."""
        try:
            return await self.catalogue.models(
                self.client, account=self.account, refresh=refresh, patience=LIST_PATIENCE
            )
        except BridgeError as error:
            raise ExplainedError(error, self.way) from error
        finally:
            await self.catalogue.aclose()


def choose_gateway(where: ConnectionOptions, has_key: bool, can_serve: bool) -> GatewayChoice:
    if where.ui_stream:
        return GatewayChoice("ui-stream", where.ui_stream)
    if where.local:
        return GatewayChoice("local")
    if where.base_url:
        return GatewayChoice("remote", where.base_url)
    if has_key:
        return GatewayChoice("remote", VERCEL_URL)
    if can_serve and where.backend in (None, "openresponses"):
        return GatewayChoice("local", reason="No key and no --base-url: using a small model on this machine.")
    return GatewayChoice(
        "embedded", reason="No key and no --base-url: using the embedded demo, no real model."
    )


@contextlib.asynccontextmanager
async def connect(where: ConnectionOptions) -> AsyncIterator[Connection]:
    settings, account, key = await _told(where)
    if account is not None and not account.by_default:
        where = msgspec.structs.replace(where, base_url=account.base_url, backend=account.backend)
    choice = choose_gateway(where, key is not None, is_installed())
    if choice.reason:
        click.echo(choice.reason, err=True)
    async with _connected(choice, where, settings, account, key) as connection:
        yield connection


async def _told(where: ConnectionOptions) -> tuple[Settings, Account | None, Key | None]:
    """The settings, and the account to use with its key; neither where another place was named."""
    loaded = load_settings(where.flags())
    if where.local or where.ui_stream:
        return loaded.settings, None, None
    account = resolve_account(loaded)
    return loaded.settings, account, await TokenRefresher().good(find_key(account))


@contextlib.asynccontextmanager
async def _connected(
    choice: GatewayChoice,
    where: ConnectionOptions,
    settings: Settings,
    account: Account | None,
    key: Key | None,
) -> AsyncIterator[Connection]:
    timeouts, proxy, allow_http = http_timeouts(settings), settings.proxy, settings.allow_http
    backend = where.backend or "openresponses"
    match choice.kind:
        case "remote":
            async with open_client(
                backend,
                choice.base_url,
                key.value if key else None,
                timeouts=timeouts,
                proxy=proxy,
                allow_http=allow_http,
            ) as client:
                name = account.name if account else ""
                catalogue = Catalog(catalog_folder())
                yield Connection(
                    client,
                    choice.base_url,
                    settings=settings,
                    account=name,
                    way=backend,
                    lasting=True,
                    lessons=_lessons(catalogue, name),
                    catalogue=catalogue,
                )
        case "ui-stream":
            # The key of a gateway is nobody else's business: only one meant for Tollbridge itself is sent.
            own = clean_key(os.environ.get(OWN, ""), OWN) or None
            async with UiStreamClient(
                choice.base_url, own, timeouts=timeouts, proxy=proxy, allow_http=allow_http
            ) as chat:
                yield Connection(
                    chat, choice.base_url, "the endpoint's own model", settings, "ui-stream", "ui-stream"
                )
        case "local":
            if backend != "openresponses":
                raise click.UsageError("The model on this machine speaks OpenResponses. Leave out --backend.")
            with FetchBar() as progress:
                async with (
                    LocalModel(progress=progress) as local,
                    OpenResponsesClient(local.url, timeouts=timeouts) as client,
                ):
                    progress.close()
                    lessons = CompatMemory(lambda _url, _model: known_quirks("llama.cpp"))
                    yield Connection(
                        client,
                        "this machine (llama.cpp)",
                        local.model_id,
                        settings,
                        "local",
                        "local",
                        lessons=lessons,
                    )
        case "embedded":
            # Not at the top: a whole server, for those who have no gateway.
            from tollbridge.testing.catalog import MODELS
            from tollbridge.testing.server import Gateway

            async with Gateway() as gateway, open_client(backend, gateway.url) as client:
                yield Connection(
                    client, "the embedded demo gateway", MODELS[0]["id"], settings, "demo", backend
                )
        case _:
            assert_never(choice.kind)


async def pick_model(connection: Connection, asked: str | None) -> str:
    """The model to use: the one asked for or set, a favourite, the only one, or a question back."""
    if connection.way == "ui-stream":
        asked = None  # one that the environment names is for gateways
    chosen = asked or connection.model or connection.settings.model
    if chosen:
        return chosen
    listing = await connection.list_models()
    names = [model.id for model in filter_models(listing.models, connection.settings) if model.is_chat_model]
    if len(names) == 1 or (names and is_favourite(names[0], connection.settings)):
        return names[0]
    if not names:
        raise click.UsageError("The gateway lists no models. Say which one to use with --model.")
    raise click.UsageError(
        f"The gateway has {len(names)} models. Say which one with --model, for example {one_line(names[0])}; "
        "`tollbridge models` lists them."
    )
