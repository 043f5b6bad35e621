"""The options that several commands share. Each set arrives in its command as one value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
from click.core import ParameterSource

from tollbridge.types.media import sniff
from tollbridge.types.messages import DataPart
from tollbridge.types.text import replace_surrogates
from tollbridge.types.urls import BACKENDS, USERINFO_ERROR, VERCEL_URL, Backend, has_userinfo

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# No window takes more: at a token for every four bytes, four million tokens.
PROMPT_LIMIT = 16 * 1024 * 1024
IMAGE_LIMIT = 20 * 1024 * 1024

Command = Callable[..., int | None]


class ConnectionOptions(msgspec.Struct, frozen=True):
    """Which gateway the person asked for, if any."""

    base_url: str | None = None
    local: bool = False
    allow_http: bool = False
    backend: Backend | None = None
    ui_stream: str | None = None
    account: str | None = None
    record: str | None = None
    record_redact: bool = False

    def flags(self) -> dict[str, object]:
        """What was given, as settings that outrank all others; what was not is `None`."""
        return {
            "account": self.account,
            "base_url": self.base_url,
            "backend": self.backend,
            "allow_http": self.allow_http or None,
            "record": self.record,
            "record_redact": self.record_redact or None,
        }


class PromptOptions(msgspec.Struct, frozen=True):
    """What the person asked of the answers. `images` go with the first question."""

    model: str | None = None
    system: str | None = None
    images: tuple[DataPart, ...] = ()
    effort: str | None = None


def connection_options(command: Command) -> Command:
    """Gives the command `where: Where`."""

    @click.option("--local", is_flag=True, help="Use the small model on this machine.")
    @click.option(
        "--base-url",
        metavar="URL",
        callback=_check_url,
        help="The gateway; its address usually ends in /v1.  [env: TOLLBRIDGE_BASE_URL]",
    )
    @click.option(
        "--account", metavar="NAME", help="The account of your settings file.  [env: TOLLBRIDGE_ACCOUNT]"
    )
    @click.option(
        "--allow-http",
        is_flag=True,
        help="Allow plain http beyond this machine, where anyone on the way can read along.",
    )
    @click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        help=f"The protocol the gateway is asked in; {BACKENDS[0]} unless set.  [env: TOLLBRIDGE_BACKEND]",
    )
    @functools.wraps(command)
    def with_where(
        local: bool,
        base_url: str | None,
        account: str | None,
        allow_http: bool,
        backend: Backend | None,
        **rest: Any,
    ) -> int | None:
        if local and (base_url or account):
            other = "--base-url" if base_url else "--account"
            raise click.UsageError(f"--local and {other} name two gateways. Give one of them.")
        return command(where=ConnectionOptions(base_url, local, allow_http, backend, None, account), **rest)

    return with_where


def ui_stream_option(command: Command) -> Command:
    """Lets the command's `where` also be anyone's chat endpoint. It stands below `where_options`."""

    @click.option(
        "--ui-stream",
        metavar="URL",
        callback=_check_url,
        help="A chat endpoint that answers with an AI SDK UI message stream, instead of a gateway.",
    )
    @functools.wraps(command)
    def with_ui_stream(ui_stream: str | None, where: ConnectionOptions, **rest: Any) -> int | None:
        if ui_stream and (where.local or where.base_url or where.account):
            raise click.UsageError(
                "--ui-stream names a place of its own. Leave out --local, --base-url and --account."
            )
        if ui_stream and (given := _given("model", "effort", "backend")):
            raise click.UsageError(
                f"{given} is not for --ui-stream: the endpoint has a model of its own. Leave it out."
            )
        return command(where=msgspec.structs.replace(where, ui_stream=ui_stream), **rest)

    return with_ui_stream


def _given(*names: str) -> str | None:
    """The first of these options that stands on the command line, as it is written there."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            return option.opts[0]
    return None


def record_options(command: Command) -> Command:
    """Lets the command's `where` say that turns are recorded. It stands below `where_options`."""

    @click.option(
        "--record",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="Record every turn in this folder, to replay it or to show it.  [env: TOLLBRIDGE_RECORD]",
    )
    @click.option("--record-redact", is_flag=True, help="Blot out what was said in recordings.")
    @functools.wraps(command)
    def with_record(
        record: str | None, record_redact: bool, where: ConnectionOptions, **rest: Any
    ) -> int | None:
        told = msgspec.structs.replace(where, record=record, record_redact=record_redact)
        return command(where=told, **rest)

    return with_record


def prompt_options(command: Command) -> Command:
    """Gives the command `wishes: Wishes`."""

    @click.option(
        "--model",
        envvar="TOLLBRIDGE_MODEL",
        metavar="NAME",
        help="The model, as `tollbridge models` names it.  [env: TOLLBRIDGE_MODEL]",
    )
    @click.option("--system", metavar="TEXT", help="What the model is told first.")
    @click.option(
        "--image",
        "images",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=lambda _context, _option, paths: tuple(read_image(path) for path in paths),
        help="Show the model an image; may be given several times.",
    )
    @click.option(
        "--reasoning",
        "effort",
        type=click.Choice(EFFORTS),
        metavar="EFFORT",
        help=f"How hard to think: {', '.join(EFFORTS)}.",
    )
    @functools.wraps(command)
    def with_wishes(
        model: str | None, system: str | None, images: tuple[DataPart, ...], effort: str | None, **rest: Any
    ) -> int | None:
        told = None if system is None else replace_surrogates(system)
        return command(wishes=PromptOptions(model, told, images, effort), **rest)

    return with_wishes


def read_image(path: Path) -> DataPart:
    """The image in a file, by what its bytes say it is."""
    try:
        with path.open("rb") as file:
            data = file.read(IMAGE_LIMIT + 1)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > IMAGE_LIMIT:
        raise click.BadParameter(f"{path} is larger than {IMAGE_LIMIT >> 20} MiB, the most that is sent.")
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        raise click.BadParameter(f"{path} is not an image (PNG, JPEG, GIF, WebP...).")
    return DataPart(data, mime, path.name)


def _check_url(_context: click.Context, _option: click.Parameter, url: str | None) -> str | None:
    if not url:
        return None
    if has_userinfo(url):
        raise click.BadParameter(USERINFO_ERROR)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise click.BadParameter(f"{url!r} is not a URL: {error}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(f"{url!r} is not an http or https URL. For example: {VERCEL_URL}")
    return url
