"""Which gateway a command talks to: the one asked for, the one there is a key for, or one on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Literal, assert_never

import click
import msgspec

from tollbridge.catalogue import Catalogue, Listing, choose_models, is_favourite
from tollbridge.catalogue.choosing import corrected
from tollbridge.cli.failures import Explained, Way
from tollbridge.cli.options import Where
from tollbridge.cli.progress import FetchBar
from tollbridge.cli.terminal import one_line
from tollbridge.clients.aisdk import UiStreamClient
from tollbridge.clients.choice import open_client
from tollbridge.clients.gateway import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.core.addresses import VERCEL
from tollbridge.core.errors import BridgeError
from tollbridge.core.messages import ChatRequest
from tollbridge.core.models import Capabilities, Model
from tollbridge.core.places import catalogue_folder
from tollbridge.core.quirks import Quirks
from tollbridge.healing import Learned, RememberedLessons
from tollbridge.local import LocalModel, is_installed
from tollbridge.profiles import UnreadableProfile, find_quirks, known_quirks
from tollbridge.recorder import Recorder
from tollbridge.settings import Chosen, Key, Settings, chosen_account, find_key, load, with_settings
from tollbridge.settings.keys import OWN, clean_key
from tollbridge.settings.network import http_timeouts
from tollbridge.settings.oidc import TokenRefresher
from tollbridge.usage import Payer

# What is tried of a model that nothing is known of.
_TRIED = {"tools": True, "images": True, "files": True, "reasoning": False}
# Seconds a person waits for a new list where there is an old one.
LIST_PATIENCE = 3.0

Kind = Literal["remote", "local", "embedded", "ui-stream"]


class Choice(msgspec.Struct, frozen=True):
    """`reason` is told to the person where the choice was not theirs."""

    kind: Kind
    base_url: str = ""
    reason: str = ""


class Known(msgspec.Struct, frozen=True):
    """Of a model, before a turn: what its server wants, the most input tokens, and what it can do; `None`
    where nobody says."""

    learned: Learned
    window: int | None
    abilities: Capabilities | None


def _lessons(catalogue: Catalogue, account: str = "") -> RememberedLessons:
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

    return RememberedLessons(quirks)


class Connection(msgspec.Struct, frozen=True):
    """`model` is the one to use where none was asked for; `None` leaves it to the gateway's list.

    `lessons` are what is known of the server: what its profile says, and what was learned since.
    """

    client: GatewayClient
    place: str
    model: str | None = None
    settings: Settings = Settings()
    account: str = ""
    way: Way = "openresponses"
    # Whether the place will still be there tomorrow, so that its list of models is worth keeping.
    lasting: bool = False
    lessons: RememberedLessons = msgspec.field(default_factory=lambda: _lessons(Catalogue()))
    catalogue: Catalogue = msgspec.field(default_factory=Catalogue)

    @property
    def payer(self) -> Payer:
        """For the ledger."""
        return Payer(self.account, self.client.base_url)

    @property
    def recorder(self) -> Recorder | None:
        """Where turns are recorded, if they are."""
        folder = self.settings.record_folder
        return Recorder(folder, redacted=self.settings.record_redact) if folder else None

    def prepared(self, request: ChatRequest) -> ChatRequest:
        """The request with what the settings add to it."""
        return with_settings(request, self.settings, self.client.base_url)

    def known(self, model: str) -> Known:
        """By the last list and by the settings. Where neither says what it can do, everything is tried, and a
        refusal tells."""
        found = self.catalogue.find(self.client, model, account=self.account) or Model(id=model)
        told = corrected(found, self.settings)
        if found.tags | found.parameters:
            abilities: Capabilities | None = told.capabilities
        else:
            said = {**_TRIED, **told.told}
            abilities = Capabilities(**said) if said != _TRIED else None
        return Known(
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
            raise Explained(error, self.way) from error
        finally:
            await self.catalogue.aclose()


def choose(where: Where, has_key: bool, can_serve: bool) -> Choice:
    if where.ui_stream:
        return Choice("ui-stream", where.ui_stream)
    if where.local:
        return Choice("local")
    if where.base_url:
        return Choice("remote", where.base_url)
    if has_key:
        return Choice("remote", VERCEL)
    if can_serve and where.backend in (None, "openresponses"):
        return Choice("local", reason="No key and no --base-url: using a small model on this machine.")
    return Choice("embedded", reason="No key and no --base-url: using the embedded demo, no real model.")


@contextlib.asynccontextmanager
async def connect(where: Where) -> AsyncIterator[Connection]:
    settings, account, key = await _told(where)
    if account is not None and not account.by_default:
        where = msgspec.structs.replace(where, base_url=account.base_url, backend=account.backend)
    choice = choose(where, key is not None, is_installed())
    if choice.reason:
        click.echo(choice.reason, err=True)
    async with _connected(choice, where, settings, account, key) as connection:
        yield connection


async def _told(where: Where) -> tuple[Settings, Chosen | None, Key | None]:
    """The settings, and the account to use with its key; neither where another place was named."""
    loaded = load(where.flags())
    if where.local or where.ui_stream:
        return loaded.settings, None, None
    account = chosen_account(loaded)
    return loaded.settings, account, await TokenRefresher().good(find_key(account))


@contextlib.asynccontextmanager
async def _connected(
    choice: Choice, where: Where, settings: Settings, account: Chosen | None, key: Key | None
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
                catalogue = Catalogue(catalogue_folder())
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
                    lessons = RememberedLessons(lambda _url, _model: known_quirks("llama.cpp"))
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
            from tollbridge.gateway import MODELS, Gateway

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
    names = [model.id for model in choose_models(listing.models, connection.settings) if model.is_chat_model]
    if len(names) == 1 or (names and is_favourite(names[0], connection.settings)):
        return names[0]
    if not names:
        raise click.UsageError("The gateway lists no models. Say which one to use with --model.")
    raise click.UsageError(
        f"The gateway has {len(names)} models. Say which one with --model, for example {one_line(names[0])}; "
        "`tollbridge models` lists them."
    )
