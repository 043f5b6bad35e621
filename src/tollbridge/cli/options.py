"""Options shared by several commands. Each decorator passes its group of options as one struct."""

from __future__ import annotations

import functools
import inspect
import math
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from tollbridge.cli.terminal import one_line
from tollbridge.protocols import BACKENDS, Backend
from tollbridge.types.media import sniff
from tollbridge.types.messages import DataPart, TextPart
from tollbridge.types.text import read_json, replace_surrogates
from tollbridge.types.urls import USERINFO_ERROR, has_userinfo

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# The size of an attached file (bytes).
FILE_LIMIT = 20 * 1024 * 1024
# Request fields that have an option of their own, or that the command controls.
_NOT_FOR_OPTION = frozenset({"model", "messages", "input", "instructions", "tools", "stream"})

Command = Callable[..., int | None]
Decorator = Callable[[Command], Command]


def complete_model(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    """Complete the models of all gateways whose lists are cached. Nothing is fetched."""
    # Imported here: only a shell that completes a model needs them.
    from tollbridge.catalog.cache import CatalogCache
    from tollbridge.transport.files import catalog_folder

    names = CatalogCache(catalog_folder()).model_ids()
    return [name for name in sorted(names) if name.startswith(incomplete)]


def model_option(help: str, **attributes: Any) -> Decorator:
    """Return the option `--model` with a help text that ends with its environment variable."""
    return click.option(
        *("--model", "-m"),
        type=replace_surrogates,  # bytes that are not UTF-8 cannot be sent or stored
        shell_complete=complete_model,
        metavar="NAME",
        help=f"{help}  [env: TOLLBRIDGE_MODEL]",
        **attributes,
    )


def json_option(help: str) -> Decorator:
    """Return the option `--json`, which the command receives as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


class WholeNumber(click.ParamType[int]):
    """A whole number from `min` to `max`, if given."""

    name = "number"

    def __init__(self, min: int, max: int | None = None) -> None:
        self._min = min
        self._max = max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = self._min - 1
        if number < self._min or (self._max is not None and number > self._max):
            limits = f"of at least {self._min}" if self._max is None else f"from {self._min} to {self._max}"
            self.fail(f"{str(value)!r} is not a whole number {limits}.", param, ctx)
        return number


class _Folder(click.Path):
    """A folder, which need not exist. A file of this name is not an error of the command line."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("The name is empty. Pass the name of a directory.", param, ctx)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise click.ClickException(f"{error.message} Name another directory.") from error


def _read_number(text: str) -> float:
    """Read a number. Unlike click's, it is neither NaN nor infinite, which JSON cannot represent."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise click.BadParameter(f"{text!r} is not a number. Pass a number such as 0.2.")
    return number


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
        names = ("account", "base_url", "backend", "allow_http", "headers", "record", "record_redact")
        return {name: getattr(self, name) or None for name in names}

    def as_arguments(self) -> str:
        """Return the options that select the gateway, as they are typed: ` --base-url https://host/v1`."""
        options = {"--base-url": self.base_url, "--account": self.account, "--backend": self.backend}
        arguments = [f" {name} {shlex.quote(one_line(value))}" for name, value in options.items() if value]
        flags = {"--local": self.local, "--allow-http": self.allow_http}
        return "".join([*arguments, *(f" {name}" for name, is_set in flags.items() if is_set)])


class PromptOptions(msgspec.Struct, frozen=True):
    """The model and the parts of a prompt.

    Attributes:
        attachments: Images and other files for the first message.
        parameters: Fields of the `ChatRequest`.
        raw: Whether to print Markdown as it is, on a terminal too.
    """

    model: str | None = None
    system: str | None = None
    attachments: tuple[TextPart | DataPart, ...] = ()
    parameters: Mapping[str, Any] = {}
    raw: bool = False


class KeepOptions(msgspec.Struct, frozen=True):
    """Whether the conversation is kept (`None`: as the settings say), and whether the last one continues."""

    keep: bool | None = None
    resume: bool = False


def read_image(path: Path) -> DataPart:
    """Read an image file. The MIME type comes from its content, not from its name."""
    data = read_file(path)
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        raise click.ClickException(
            f"{path} is not an image. Supported formats include PNG, JPEG, GIF and WebP."
        )
    return DataPart(data, mime, path.name)


def read_attachment(path: Path) -> TextPart | DataPart:
    """Read a file of any kind: a text as a Markdown code block with the file's name, others as data."""
    data = read_file(path)
    if mime := sniff(data):
        return DataPart(data, mime, path.name)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException(
            f"{path} is neither UTF-8 text nor in a supported format (images, PDF, audio)."
        ) from error
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`{3,}", text)), 0)
    return TextPart(f"{path.name}:\n\n{fence}\n{text.rstrip()}\n{fence}")


def read_file(path: Path, limit: int = FILE_LIMIT, *, allow_dash: bool = False) -> bytes:
    """Read a file of at most `limit` bytes that an option names; with `allow_dash`, - is standard input.

    Raises:
        click.ClickException: The file cannot be read or is too large.
    """
    try:
        with click.open_file(path, "rb") if allow_dash else path.open("rb") as file:
            data: bytes = file.read(limit + 1)
    except OSError as error:
        others = "another file, or - for standard input" if allow_dash else "another file"
        raise click.ClickException(f"Cannot read {path}: {error.strerror}. Name {others}.") from error
    if len(data) > limit:
        raise click.ClickException(f"{path} exceeds the {limit >> 20} MiB limit.")
    return data


def _read_headers(
    _context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Split headers into name and value, and check them. No message repeats a value."""
    if not values:
        return {}
    # Imported here: most commands have no such option, and this module is loaded with every command.
    from tollbridge.config.headers import header_problem
    from tollbridge.config.schema import SecretHeader

    headers: dict[str, str] = {}
    for text in values:
        name, colon, value = (piece.strip() for piece in text.partition(":"))
        if not colon:
            raise click.BadParameter(f"expected {option.metavar}.")
        is_secret = option.name == "secret_headers"
        advice = f"Use --secret-header '{one_line(name)}: environment:NAME', or keyring:NAME"
        header = SecretHeader(secret=value) if is_secret else value
        if problem := header_problem(name, header, advice):
            raise click.BadParameter(f"{one_line(name)}: {problem}.")
        headers[name.lower()] = value
    return headers


def _check_url(_context: click.Context, option: click.Parameter, url: str | None) -> str | None:
    if not url:
        return None
    # Imported here, because this module is loaded with every command.
    from tollbridge.config.validation import url_problem

    if has_userinfo(url):
        raise click.BadParameter(USERINFO_ERROR)
    example = "https://host/v1" if option.name == "base_url" else "https://host/api/chat"
    if problem := url_problem(url, example):
        raise click.BadParameter(f"{url!r} is {problem}.")
    return url


def _read_fields(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, Any]:
    """Read request fields. Those that a `ChatRequest` does not name are in its field `extra`."""
    # Imported here: most commands have no such option, and this module is loaded with every command.
    from tollbridge.config.parameters import REQUEST_PARAMETERS, parameter_error

    named: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for text in values:
        name, equals, value_text = replace_surrogates(text).partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE.")
        if name in _NOT_FOR_OPTION:
            raise click.BadParameter(f"{name!r} cannot be set with -o. See --help for the options.")
        try:
            value = read_json(value_text)
        except ValueError:
            value = value_text
        if problem := parameter_error(name, value):
            raise click.BadParameter(f"{name}: {problem}.")
        (named if name in REQUEST_PARAMETERS else extra)[name] = value
    return {**named, "extra": extra} if extra else named


def _add_options(argument: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds options to a command and passes their values as one argument.

    Args:
        argument: The name of the argument.
        make: Makes the value of the argument. Its parameters are options, or arguments of decorators above.
        options: The options, in the order of the help text.
    """
    names = inspect.signature(make).parameters

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**values: Any) -> int | None:
            value = make(**{name: values.pop(name) for name in names})
            return command(**values, **{argument: value})

        decorated: Command = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def _make_connection(
    local: bool,
    base_url: str | None,
    account: str | None,
    allow_http: bool,
    backend: Backend | None,
    headers: dict[str, str],
    secret_headers: dict[str, str],
) -> ConnectionOptions:
    if local and (base_url or account):
        other = "--base-url" if base_url else "--account"
        raise click.UsageError(f"--local and {other} are mutually exclusive.")
    secrets = {name: {"secret": source} for name, source in secret_headers.items()}
    return ConnectionOptions(
        base_url, local, allow_http, backend, None, account, headers={**headers, **secrets}
    )


# The options that choose the gateway; the command receives `where: ConnectionOptions`.
connection_options = _add_options(
    "where",
    _make_connection,
    click.option("--local", is_flag=True, help="Use the small local model (downloaded on first use)."),
    click.option(
        "--base-url",
        metavar="URL",
        callback=_check_url,
        help="Gateway base URL, usually ending in /v1. Default: the one in the settings file; without "
        "it, Vercel AI Gateway if there is an API key, else the local model.  [env: TOLLBRIDGE_BASE_URL]",
    ),
    click.option(
        "--account",
        metavar="NAME",
        help="Account from the settings file. Default: its `account` setting.  [env: TOLLBRIDGE_ACCOUNT]",
    ),
    click.option("--allow-http", is_flag=True, help="Allow unencrypted HTTP to remote hosts (insecure)."),
    click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        help=f"Gateway protocol.  [env: TOLLBRIDGE_BACKEND; default: {BACKENDS[0]}]",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="'NAME: VALUE'",
        callback=_read_headers,
        help="Extra header for requests to the gateway; repeatable. Not for keys: see --secret-header.",
    ),
    click.option(
        "--secret-header",
        "secret_headers",
        multiple=True,
        metavar="'NAME: SOURCE'",
        callback=_read_headers,
        help="Extra header with a secret value from environment:NAME or keyring:NAME; repeatable.",
    ),
)


def _add_ui_stream(where: ConnectionOptions, ui_stream: str | None) -> ConnectionOptions:
    if ui_stream and (where.local or where.base_url or where.account):
        raise click.UsageError("--ui-stream cannot be combined with --local, --base-url or --account.")
    context = click.get_current_context()
    for option in context.command.params if ui_stream else ():
        is_set = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if is_set and option.name in ("model", "effort", "backend"):
            flag = option.opts[0]
            raise click.UsageError(f"{flag} cannot be used with --ui-stream; the endpoint chooses the model.")
    return msgspec.structs.replace(where, ui_stream=ui_stream)


# Sets `where.ui_stream`. Apply it below `connection_options`.
ui_stream_option = _add_options(
    "where",
    _add_ui_stream,
    click.option(
        "--ui-stream",
        metavar="URL",
        callback=_check_url,
        help="Use a chat endpoint that returns an AI SDK UI message stream, instead of a gateway.",
    ),
)


def _add_record(where: ConnectionOptions, record: str | None, record_redact: bool) -> ConnectionOptions:
    return msgspec.structs.replace(where, record=record, record_redact=record_redact)


# Set fields of `where`. Apply them below `connection_options`.
record_options = _add_options(
    "where",
    _add_record,
    click.option(
        "--record",
        type=_Folder(file_okay=False),
        metavar="DIR",
        help="Save a recording of each request in this directory, for `tollbridge replay`.  "
        "[env: TOLLBRIDGE_RECORD]",
    ),
    click.option("--record-redact", is_flag=True, help="Remove message content from recordings."),
)

# The command receives `over_budget: bool`.
over_budget_option = click.option(
    "--over-budget", is_flag=True, help="Send requests even if they exceed a budget."
)


def _make_prompt(
    model: str | None,
    system: str | None,
    images: tuple[DataPart, ...],
    files: tuple[TextPart | DataPart, ...],
    effort: str | None,
    max_tokens: int | None,
    temperature: float | None,
    fields: dict[str, Any],
    raw: bool,
) -> PromptOptions:
    system = None if system is None else replace_surrogates(system)
    named = {"reasoning_effort": effort, "max_output_tokens": max_tokens, "temperature": temperature}
    parameters = fields | {name: value for name, value in named.items() if value is not None}
    return PromptOptions(model, system, (*images, *files), parameters, raw)


# The options for the model and the prompt; the command receives `wishes: PromptOptions`.
prompt_options = _add_options(
    "wishes",
    _make_prompt,
    model_option(
        "Model ID (see `tollbridge models`). Default: the `model` setting, else your first favourite or the "
        "gateway's only model."
    ),
    click.option("--system", "-s", metavar="TEXT", help="System prompt. Default: none."),
    click.option(
        "--image",
        "images",
        multiple=True,
        type=click.Path(path_type=Path),
        callback=lambda _context, _option, paths: tuple(map(read_image, paths)),
        help="Attach an image to the (first) prompt; repeatable.",
    ),
    click.option(
        "--file",
        "-f",
        "files",
        multiple=True,
        type=click.Path(path_type=Path),
        callback=lambda _context, _option, paths: tuple(map(read_attachment, paths)),
        help="Attach a text file, an image, a PDF or audio to the (first) prompt; repeatable.",
    ),
    click.option(
        "--reasoning",
        "effort",
        type=click.Choice(EFFORTS),
        metavar="EFFORT",
        help=f"Reasoning effort: {', '.join(EFFORTS)}. By default the model decides.",
    ),
    click.option(
        "--max-tokens", type=WholeNumber(1), metavar="N", help="The most tokens that the answer may have."
    ),
    click.option("--temperature", type=_read_number, metavar="T", help="Sampling temperature, such as 0.2."),
    click.option(
        "--option",
        "-o",
        "fields",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_read_fields,
        help="Any other field of the request, such as top_p=0.9 or service_tier=flex; repeatable. The value "
        "is JSON, or else a text.",
    ),
    click.option("--raw", is_flag=True, help="Print Markdown as the model wrote it, on a terminal too."),
)

# The command receives `keep: KeepOptions`.
keep_options = _add_options(
    "keep",
    KeepOptions,
    click.option(
        "--continue", "-c", "resume", is_flag=True, help="Continue the last conversation that was kept."
    ),
    click.option(
        "--keep/--no-keep",
        default=None,
        help="Keep the conversation on this computer, for --continue and `tollbridge log`. Default: the "
        "`keep_conversations` setting.  [env: TOLLBRIDGE_KEEP_CONVERSATIONS]",
    ),
)
