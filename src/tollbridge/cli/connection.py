"""Select and open the gateway that a command uses."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from tollbridge.catalog.models import Catalog, Listing, filter_models, is_favourite
from tollbridge.cli.errors import LIST_ADVICE, LOCAL_ADVICE, ExplainedError, explain
from tollbridge.cli.options import ConnectionOptions
from tollbridge.cli.terminal import one_line
from tollbridge.compat.known_servers import known_quirks
from tollbridge.compat.memory import CompatMemory
from tollbridge.config.headers import find_secret_headers
from tollbridge.config.keys import API_KEY_VARIABLE, clean_key
from tollbridge.config.schema import Account, BudgetSettings, SecretHeader, Settings
from tollbridge.engine import Engine
from tollbridge.local.process import DEFAULT_CONTEXT, LocalModel, check_installation, is_installed
from tollbridge.protocols import DEFAULT_BACKEND, DEFAULT_ENDPOINT
from tollbridge.transport.loading import declare_own_program
from tollbridge.types.errors import BridgeError, Kind
from tollbridge.types.models import Model
from tollbridge.types.urls import VERCEL_URL

if TYPE_CHECKING:
    from rich.progress import Progress

_DESCRIPTION = "Downloading a small model"


class DownloadProgress:
    """Show the progress of the model download: a bar on a terminal, one line elsewhere."""

    def __init__(self) -> None:
        self._bar: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None:
            # Imported here: loading it takes longer than most commands run, and most download nothing.
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            is_terminal = sys.stderr.isatty()
            if not is_terminal:
                click.echo(f"{_DESCRIPTION} ({total / 1e6:.0f} MB, first run only)…", err=True)
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), disable=not is_terminal)
            self._bar.add_task(_DESCRIPTION, total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._bar is not None:
            self._bar.stop()


# Seconds to wait for a new model list if an older one is available.
LIST_WAIT = 3.0


class GatewayChoice(msgspec.Struct, frozen=True):
    """The gateway a command uses. `reason` is shown if the user did not choose it."""

    kind: Literal["remote", "local", "embedded", "endpoint"]
    base_url: str = ""
    reason: str = ""


class Session(msgspec.Struct, frozen=True):
    """An engine with the account that a command uses.

    Attributes:
        place: The gateway's name for people.
        model: The model to use if the user named none; `None` leaves it to the model list.
        lasting: Whether the gateway still exists after this command, so that a profile of it is useful.
        arguments: The options that select the same gateway in another command, such as ` --local`.
        models: The model list, if it is known without a request.
    """

    engine: Engine
    account: Account
    place: str
    model: str | None = None
    lasting: bool = False
    arguments: str = ""
    models: tuple[Model, ...] | None = None
    is_local: bool = False

    @property
    def settings(self) -> Settings:
        return self.engine.settings

    @property
    def secrets(self) -> list[str]:
        """The keys that are sent, to be removed from whatever is written to a file."""
        headers = find_secret_headers(self.account.headers)
        keys = (self.account.api_key, os.environ.get(API_KEY_VARIABLE), *headers.values())
        return [key for key in keys if key]

    async def list_models(self, *, refresh: bool = False) -> Listing:
        """Return the gateway's models. If the gateway is slow, an older list from the disk is returned."""
        if self.models is not None:
            return Listing(self.models, time.time())
        try:
            return await self.engine.list_models(self.account, refresh=refresh, wait=LIST_WAIT)
        except BridgeError as error:
            raise self._explain(error, LIST_ADVICE) from error

    def print_error(self, error: BridgeError) -> None:
        """Print the error of a turn and the advice for this gateway on standard error."""
        self._explain(error).show()

    def _explain(self, error: BridgeError, advice: Mapping[Kind, str] = {}) -> ExplainedError:
        advice = {**LOCAL_ADVICE, **advice} if self.is_local else advice
        place = {"base_url": self.account.base_url, "arguments": self.arguments}
        return ExplainedError(explain(error, self.account.backend, advice, **place))


def choose_gateway(where: ConnectionOptions, has_key: bool, can_serve: bool) -> GatewayChoice:
    """Choose the gateway: the one the user named, Vercel's if there is a key, or a local model.

    `can_serve` is whether this installation can serve a local model.
    """
    if where.ui_stream:
        return GatewayChoice("endpoint", where.ui_stream)
    if where.local:
        return GatewayChoice("local")
    if where.base_url:
        return GatewayChoice("remote", where.base_url)
    if has_key:
        return GatewayChoice("remote", VERCEL_URL)
    if can_serve and where.backend in (None, DEFAULT_BACKEND):
        return GatewayChoice("local", reason="No API key or --base-url; using the local demo model.")
    return GatewayChoice(
        "embedded", reason="No API key or --base-url; using the embedded demo (not a real model)."
    )


@contextlib.asynccontextmanager
async def connect(
    where: ConnectionOptions, *, short_lived: bool = True, start_local: bool = True
) -> AsyncIterator[Session]:
    """Yield a session with the gateway that the options, the settings and the keys select.

    Args:
        short_lived: Whether the command runs a few turns and exits, see `Engine.open`.
        start_local: Whether to download and start the local model, if it is selected. Otherwise the session
            can only list it.
    """
    declare_own_program()
    arguments = where.as_arguments()
    async with Engine.open(options=where.flags(), short_lived=short_lived) as engine:
        account = None
        if not (where.local or where.ui_stream):
            account = await engine.account()
            if not account.by_default:
                where = msgspec.structs.replace(where, base_url=account.base_url, backend=account.backend)
        has_key = account is not None and account.api_key is not None
        choice = choose_gateway(where, has_key, is_installed())
        if choice.reason:
            click.echo(choice.reason, err=True)
        if choice.kind == "remote" and account is not None:
            yield Session(engine, account, account.base_url, None, True, arguments)
            return
        async with _open_session(
            choice, where, engine.settings, short_lived=short_lived, start_local=start_local
        ) as session:
            yield msgspec.structs.replace(session, arguments=arguments)


@contextlib.asynccontextmanager
async def _open_session(
    choice: GatewayChoice,
    where: ConnectionOptions,
    settings: Settings,
    *,
    short_lived: bool,
    start_local: bool,
) -> AsyncIterator[Session]:
    """Yield a session with a UI stream, the local model or the demo gateway."""
    backend = where.backend or DEFAULT_BACKEND
    async with contextlib.AsyncExitStack() as stack:
        compat = model = models = None
        match choice.kind:
            case "endpoint":
                place, model = choice.base_url, "the endpoint's model"
                # A gateway's key is not sent to other servers: only a key meant for Tollbridge itself is.
                key = clean_key(os.environ.get(API_KEY_VARIABLE, ""), API_KEY_VARIABLE) or None
                headers = msgspec.convert(where.headers, dict[str, str | SecretHeader])
                account = Account(
                    DEFAULT_ENDPOINT, place, DEFAULT_ENDPOINT, "none", api_key=key, headers=headers
                )
            case "local":
                place = "this computer (llama.cpp)"
                if backend != DEFAULT_BACKEND:
                    raise click.UsageError("--backend is not supported with --local.")
                check_installation()
                with contextlib.closing(DownloadProgress()) as progress:
                    local = LocalModel(progress=progress)
                    if start_local:
                        await stack.enter_async_context(local)
                # A model that was not started has no URL; this one is never requested.
                account = Account("local", local.url or "http://127.0.0.1/v1", backend, "none")
                models = (Model(id=local.model_id, owner="llamacpp", context_window=DEFAULT_CONTEXT),)
                compat = CompatMemory(lambda _url, _model: known_quirks("llama.cpp"))
                model = local.model_id
            case _:
                place = "the embedded demo gateway"
                # Imported here: a whole server, which few commands need.
                from tollbridge.testing.catalog import MODELS
                from tollbridge.testing.server import Gateway

                gateway = await stack.enter_async_context(Gateway())
                account = Account("demo", gateway.url, backend, "none")
                model = MODELS[0]["id"]
        if choice.kind in ("local", "embedded"):
            settings = msgspec.structs.replace(settings, budgets=BudgetSettings())  # they cost nothing
        engine = await stack.enter_async_context(
            Engine.open(settings, account=account, catalog=Catalog(), compat=compat, short_lived=short_lived)
        )
        yield Session(engine, account, place, model, models=models, is_local=choice.kind == "local")


async def pick_model(session: Session, name: str | None) -> str:
    """Return the model to use: the one named or set, a favourite, or the only one.

    Raises:
        click.UsageError: The gateway lists no model, or several and none was chosen; or another model than
            the local one was named.
    """
    if session.is_local and name not in (None, session.model):
        raise click.UsageError(
            f"The local model is {session.model}, not {one_line(name or '')}. Remove --model, or remove "
            "--local to use a gateway."
        )
    model = name or session.model or session.settings.model
    if model:
        return model
    listing = await session.list_models()
    models = [each.id for each in filter_models(listing.models, session.settings) if each.is_chat_model]
    if len(models) == 1 or (models and is_favourite(models[0], session.settings)):
        return models[0]
    if not models:
        raise click.UsageError("The gateway lists no models. Specify one with --model.")
    raise click.UsageError(
        f"Choose a model with --model, for example {one_line(models[0])} "
        f"({len(models)} available; run `tollbridge models{session.arguments}`)."
    )
