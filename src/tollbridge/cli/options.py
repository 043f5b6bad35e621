"""Options shared by several commands. Each decorator passes its group of options as one struct."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
from click.core import ParameterSource

from tollbridge.types.media import sniff
from tollbridge.types.messages import DataPart
from tollbridge.types.text import replace_surrogates
from tollbridge.types.urls import BACKENDS, USERINFO_ERROR, Backend, has_userinfo

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# About four million tokens at four bytes per token: more than any context window.
PROMPT_LIMIT = 16 * 1024 * 1024
IMAGE_LIMIT = 20 * 1024 * 1024

Command = Callable[..., int | None]


class _ModelName(click.ParamType[str]):
    """A model id. Bytes that are not UTF-8 are replaced, because they cannot be sent or stored."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return replace_surrogates(str(value))


MODEL_NAME = _ModelName()


class ConnectionOptions(msgspec.Struct, frozen=True):
    """The gateway chosen on the command line, if any, and how to connect to it."""

    base_url: str | None = None
    local: bool = False
    allow_http: bool = False
    backend: Backend | None = None
    ui_stream: str | None = None
    account: str | None = None
    record: str | None = None
    record_redact: bool = False
    headers: Mapping[str, Any] = {}

    def flags(self) -> dict[str, object]:
        """Return the options as settings with the highest precedence; `None` for options that are not set."""
        return {
            "account": self.account,
            "base_url": self.base_url,
            "backend": self.backend,
            "allow_http": self.allow_http or None,
            "headers": self.headers or None,
            "record": self.record,
            "record_redact": self.record_redact or None,
        }


class PromptOptions(msgspec.Struct, frozen=True):
    """The model and the parts of a prompt. `images` are attached to the first message."""

    model: str | None = None
    system: str | None = None
    images: tuple[DataPart, ...] = ()
    effort: str | None = None


def connection_options(command: Command) -> Command:
    """Add the options that choose the gateway; the command receives `where: ConnectionOptions`."""

    @click.option("--local", is_flag=True, help="Use the small local model (downloaded on first use).")
    @click.option(
        "--base-url",
        metavar="URL",
        callback=_check_url,
        help="Gateway base URL, usually ending in /v1. Default: the one in the settings file; without "
        "it, Vercel AI Gateway if there is an API key, else the local model.  [env: TOLLBRIDGE_BASE_URL]",
    )
    @click.option(
        "--account",
        metavar="NAME",
        help="Account from the settings file. Default: its `account` setting.  [env: TOLLBRIDGE_ACCOUNT]",
    )
    @click.option(
        "--allow-http",
        is_flag=True,
        help="Allow unencrypted HTTP to remote hosts (insecure).",
    )
    @click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        help=f"Gateway protocol.  [env: TOLLBRIDGE_BACKEND; default: {BACKENDS[0]}]",
    )
    @click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="'NAME: VALUE'",
        callback=_read_headers,
        help="Extra header for requests to the gateway; repeatable. Not for keys: see --secret-header.",
    )
    @click.option(
        "--secret-header",
        "secret_headers",
        multiple=True,
        metavar="'NAME: SOURCE'",
        callback=_read_headers,
        help="Extra header with a secret value from environment:NAME or keyring:NAME; repeatable.",
    )
    @functools.wraps(command)
    def with_connection(
        local: bool,
        base_url: str | None,
        account: str | None,
        allow_http: bool,
        backend: Backend | None,
        headers: dict[str, str],
        secret_headers: dict[str, str],
        **rest: Any,
    ) -> int | None:
        if local and (base_url or account):
            other = "--base-url" if base_url else "--account"
            raise click.UsageError(f"--local and {other} are mutually exclusive.")
        secrets = {name: {"secret": source} for name, source in secret_headers.items()}
        where = ConnectionOptions(
            base_url, local, allow_http, backend, None, account, headers={**headers, **secrets}
        )
        return command(where=where, **rest)

    return with_connection


def ui_stream_option(command: Command) -> Command:
    """Add --ui-stream, which sets `where.ui_stream`. Apply below `connection_options`."""

    @click.option(
        "--ui-stream",
        metavar="URL",
        callback=_check_url,
        help="Use a chat endpoint that returns an AI SDK UI message stream, instead of a gateway.",
    )
    @functools.wraps(command)
    def with_ui_stream(ui_stream: str | None, where: ConnectionOptions, **rest: Any) -> int | None:
        if ui_stream and (where.local or where.base_url or where.account):
            raise click.UsageError("--ui-stream cannot be combined with --local, --base-url or --account.")
        if ui_stream and (option := _first_on_command_line("model", "effort", "backend")):
            raise click.UsageError(
                f"{option} cannot be used with --ui-stream; the endpoint chooses the model."
            )
        return command(where=msgspec.structs.replace(where, ui_stream=ui_stream), **rest)

    return with_ui_stream


def _first_on_command_line(*names: str) -> str | None:
    """Return the flag of the first of these options that is set on the command line."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            return option.opts[0]
    return None


def record_options(command: Command) -> Command:
    """Add --record and --record-redact, which set fields of `where`. Apply below `connection_options`."""

    @click.option(
        "--record",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="Save a recording of each request in this directory, for `tollbridge replay`.  "
        "[env: TOLLBRIDGE_RECORD]",
    )
    @click.option("--record-redact", is_flag=True, help="Remove message content from recordings.")
    @functools.wraps(command)
    def with_record(
        record: str | None, record_redact: bool, where: ConnectionOptions, **rest: Any
    ) -> int | None:
        recorded = msgspec.structs.replace(where, record=record, record_redact=record_redact)
        return command(where=recorded, **rest)

    return with_record


def over_budget_option(command: Command) -> Command:
    """Add --over-budget; the command receives `over_budget: bool`."""
    option = click.option("--over-budget", is_flag=True, help="Send requests even if they exceed a budget.")
    return option(command)


def prompt_options(command: Command) -> Command:
    """Add the options for the model and the prompt; the command receives `wishes: PromptOptions`."""

    @click.option(
        "--model",
        type=MODEL_NAME,
        envvar="TOLLBRIDGE_MODEL",
        metavar="NAME",
        help="Model ID (see `tollbridge models`). Default: the `model` setting, else your first favourite or "
        "the gateway's only model.  [env: TOLLBRIDGE_MODEL]",
    )
    @click.option("--system", metavar="TEXT", help="System prompt. Default: none.")
    @click.option(
        "--image",
        "images",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=lambda _context, _option, paths: tuple(read_image(path) for path in paths),
        help="Attach an image to the (first) prompt; repeatable.",
    )
    @click.option(
        "--reasoning",
        "effort",
        type=click.Choice(EFFORTS),
        metavar="EFFORT",
        help=f"Reasoning effort: {', '.join(EFFORTS)}. By default the model decides.",
    )
    @functools.wraps(command)
    def with_prompt(
        model: str | None, system: str | None, images: tuple[DataPart, ...], effort: str | None, **rest: Any
    ) -> int | None:
        system = None if system is None else replace_surrogates(system)
        return command(wishes=PromptOptions(model, system, images, effort), **rest)

    return with_prompt


def read_image(path: Path) -> DataPart:
    """Read an image file. The MIME type comes from its content, not from its name.

    Raises:
        click.BadParameter: The file cannot be read, is too large or is not an image.
    """
    try:
        with path.open("rb") as file:
            data = file.read(IMAGE_LIMIT + 1)
    except OSError as error:
        raise click.BadParameter(f"Cannot read {path}: {error.strerror}.") from error
    if len(data) > IMAGE_LIMIT:
        raise click.BadParameter(f"{path} exceeds the {IMAGE_LIMIT >> 20} MiB limit.")
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        raise click.BadParameter(
            f"{path} is not an image. Supported formats include PNG, JPEG, GIF and WebP."
        )
    return DataPart(data, mime, path.name)


def _read_headers(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Split headers into name and value. The settings check them; no message repeats a value."""
    headers: dict[str, str] = {}
    for text in values:
        name, colon, value = text.partition(":")
        if not colon:
            raise click.BadParameter("expected 'NAME: VALUE'.")
        headers[name.strip().lower()] = value.strip()
    return headers


def _check_url(_context: click.Context, option: click.Parameter, url: str | None) -> str | None:
    if not url:
        return None
    if has_userinfo(url):
        raise click.BadParameter(USERINFO_ERROR)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise click.BadParameter(f"{url!r} is not a valid URL: {error}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        example = "https://host/v1" if option.name == "base_url" else "https://host/api/chat"
        raise click.BadParameter(f"{url!r} is not an http or https URL. Expected something like {example}.")
    return url
