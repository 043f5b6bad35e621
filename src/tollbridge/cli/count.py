"""`tollbridge count` and `accuracy`: count tokens, and show how close estimates were to reported counts."""

from __future__ import annotations

import asyncio
import base64
import binascii
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Literal, TypeVar

import click
import msgspec

from tollbridge.cli.options import json_option, model_option
from tollbridge.cli.output import print_json_lines, to_json
from tollbridge.cli.terminal import dim, format_count, one_line, terminal_width, wrap_line
from tollbridge.config.loading import load_settings
from tollbridge.engine import Engine
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.tokens.ledger import EstimationResult, Method
from tollbridge.tokens.prediction import Share
from tollbridge.tokens.records import Accuracy, ErrorSummary
from tollbridge.tokens.tokenizers import BASE, TextFeatures, family_of, pieces, tokenizer
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.text import read_json

T = TypeVar("T")

FILE_LIMIT = 256 * 1024 * 1024
# The names of the methods in the output for a conversation.
_METHODS: dict[Method, str] = {
    "actual": "reported by the gateway",
    "hybrid": "partly reported by the gateway",
    "estimated": "estimated",
}


class TextCount(msgspec.Struct, frozen=True):
    """The tokens in a text. The fields are those of `count --json`.

    `method` is `exact` if the model's own vocabulary was used; `weighted` if another vocabulary or samples of
    the text were used, with a learned correction; `characters` if no vocabulary could be loaded.
    """

    model: str
    tokens: int
    method: Literal["exact", "weighted", "characters"]
    vocabulary: str | None
    parts: tuple[Share, ...]


class _InputFile(click.File):
    """A file to read, or - for standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> IO[Any]:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            cause = error.__context__  # click's message repeats the name of the file
            reason = cause.strerror if isinstance(cause, OSError) else error.message
            raise click.ClickException(
                f"Cannot read {value}: {reason}. Name another file, or - for standard input."
            ) from error


@click.command()
@click.argument("file", type=_InputFile("rb"), required=False)
@model_option("Model whose tokenizer to use, e.g. openai/gpt-5. Default: the `model` setting.")
@click.option(
    "--messages",
    type=_InputFile("rb"),
    metavar="FILE.json",
    help="Count a conversation instead of a text: a JSON list of messages in Chat Completions format, or an "
    "object with `messages` and `tools`.",
)
@json_option("Output one JSON object.")
def count(file: IO[bytes] | None, model: str | None, messages: IO[bytes] | None, as_json: bool) -> None:
    """Count the tokens in FILE, or in a conversation with --messages.

    Use - as FILE to read from standard input. Uses what was learned from earlier responses. Works offline.
    """
    if file is None and messages is None:
        raise click.UsageError("Provide a FILE (- for standard input) or --messages FILE.json.")
    if file is not None and messages is not None:
        raise click.UsageError("Provide either FILE or --messages, not both.")
    model = model or load_settings().settings.model
    if not model:
        raise click.UsageError("Name the model with --model, TOLLBRIDGE_MODEL or the setting `model`.")

    def show_count(estimator: HybridTokenEstimator) -> None:
        if messages is not None:
            request = read_request(model, _read_file(messages))
            _show_conversation(model, estimator.estimate_request(request), as_json)
        elif file is not None:
            _show_text(count_text(estimator, model, _read_text(file)), as_json)

    try:
        asyncio.run(_use_estimator(show_count))
    except RequestError as error:
        raise click.ClickException(one_line(error.message)) from error


async def _use_estimator(function: Callable[[HybridTokenEstimator], T]) -> T:
    """Call a function with the estimator of this machine, which has learned from earlier responses."""
    async with Engine.open() as engine:
        return function(engine.estimator)


def _read_file(file: IO[bytes]) -> bytes:
    try:
        data = file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise RequestError(f"Cannot read {file.name}: {error.strerror or error}.") from error
    if len(data) > FILE_LIMIT:
        raise RequestError(f"{file.name} exceeds the {FILE_LIMIT >> 20} MiB limit.")
    return data


def _read_text(file: IO[bytes]) -> str:
    try:
        return _read_file(file).decode()
    except UnicodeDecodeError as error:
        name = "Standard input" if file.name == "<stdin>" else file.name
        raise click.ClickException(
            f"{name} is not UTF-8 text (byte {error.start}). Images and other files are counted as parts of "
            "a conversation: use --messages."
        ) from error


def count_text(estimator: HybridTokenEstimator, model: str, text: str) -> TextCount:
    """Count the tokens of a text for a model, and say how they were counted."""
    family = family_of(model)
    tokens = estimator.estimate_text(model, text)
    vocabulary = family.vocabulary or BASE
    if tokenizer(vocabulary) is None:
        return TextCount(model, tokens, "characters", None, (Share("by characters", tokens),))
    raw = sum(number for _, number in TextFeatures().vector(family, text))
    parts = [Share(f"{vocabulary} tokens", raw)]
    if tokens != raw:
        parts.append(Share("adjustment for this model", tokens - raw))
    exact = family.vocabulary is not None and tokens == raw and pieces(text)[1] == 1
    return TextCount(model, tokens, "exact" if exact else "weighted", vocabulary, tuple(parts))


def _show_text(result: TextCount, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(result))
        return
    match result.method:
        case "exact":
            method = f"exact, vocabulary {result.vocabulary}"
        case "weighted":
            method = f"approximate, based on {result.vocabulary}"
        case "characters":
            method = "approximate, based on the number of characters"
    click.echo(f"{format_count(result.tokens, 'token')} for {one_line(result.model)} ({method})")
    if len(result.parts) > 1:
        _show_parts(result.parts)


def _show_conversation(model: str, estimate: EstimationResult, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"model": model, **msgspec.to_builtins(estimate)}))
        return
    click.echo(
        f"{format_count(estimate.tokens, 'token')} for {one_line(model)} "
        f"({_METHODS[estimate.method]}, confidence {estimate.confidence:.0%})"
    )
    _show_parts(estimate.parts)


def _show_parts(parts: tuple[Share, ...]) -> None:
    for part in parts:
        click.echo(f"  {part.tokens:>9,}  {part.label}")


# --- Reading a conversation: Chat Completions and Responses messages, or our own Message shape ---

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "tool": Role.USER,
    "assistant": Role.ASSISTANT,
}
_EXPECTED_FORMAT = 'Expected a list of {"role": …, "content": "…"}, or {"messages": […], "tools": […]}.'
_BOM = b"\xef\xbb\xbf"


def read_request(model: str, data: bytes) -> ChatRequest:
    """Parse a conversation, in JSON: a list of messages, or an object with `messages` and `tools`.

    Raises:
        RequestError: The data is invalid. The message names the field, such as `messages[1].role`.
    """
    try:
        document = read_json(data.removeprefix(_BOM))
    except ValueError as error:
        raise RequestError(f"The conversation is not valid JSON: {error}. {_EXPECTED_FORMAT}") from error
    body = {"messages": document} if isinstance(document, list) else document
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise RequestError(f"The conversation has no list of messages. {_EXPECTED_FORMAT}")
    return ChatRequest(
        model=model,
        messages=tuple(_message(index, message) for index, message in enumerate(body["messages"])),
        tools=tuple(_tool(index, tool) for index, tool in enumerate(_list(body, "tools", "tools"))),
    )


def _list(body: dict[str, Any], name: str, path: str) -> list[Any]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError(f"{path} is not a list. {_EXPECTED_FORMAT}")
    return value


def _message(index: int, value: Any) -> Message:
    path = f"messages[{index}]"
    role = value.get("role") if isinstance(value, dict) else None
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(f"{path}.role must be one of {', '.join(_ROLES)}. {_EXPECTED_FORMAT}")
    if "parts" in value:  # our own Message shape
        try:
            return msgspec.convert({**value, "role": _ROLES[role]}, Message)
        except msgspec.ValidationError as error:
            raise RequestError(f"{path} is invalid: {error}.") from error
    contents = tuple(_contents(path, value))
    if role == "tool":
        return Message(_ROLES[role], (ToolResultPart(str(value.get("tool_call_id", "")), contents),))
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise RequestError(f"{path}.name is not a string.")
    parts: tuple[Part, ...] = (*contents, *_calls(path, value))
    return Message(_ROLES[role], parts, name)


def _contents(path: str, message: dict[str, Any]) -> Iterator[TextPart | DataPart]:
    content = message.get("content")
    if isinstance(content, str):
        yield TextPart(content)
    elif isinstance(content, list):
        for index, part in enumerate(content):
            yield _content(f"{path}.content[{index}]", part)
    elif content is not None or not message.get("tool_calls"):
        raise RequestError(f"{path}.content is neither a string nor a list of parts. {_EXPECTED_FORMAT}")


def _content(path: str, part: Any) -> TextPart | DataPart:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return TextPart(part["text"])
    for name, read in _MEDIA.items():
        if isinstance(part, dict) and name in part:
            return read(path, part[name])
    raise RequestError(f"{path} is not a known part: it needs one of text, {', '.join(_MEDIA)}.")


def _image(path: str, value: Any) -> DataPart:
    url = value.get("url") if isinstance(value, dict) else value
    if isinstance(url, str) and url.startswith(("http://", "https://")):
        return DataPart(b"", "image/png")  # not downloaded; counted as an image of a typical size
    return _from_url(f"{path}.image_url", url)


def _file(path: str, value: Any) -> DataPart:
    return _from_url(f"{path}.file", value.get("file_data") if isinstance(value, dict) else value)


def _audio(path: str, value: Any) -> DataPart:
    audio = value if isinstance(value, dict) else {}
    url = f"data:audio/{audio.get('format', 'wav')};base64,{audio.get('data', '*')}"
    return _from_url(f"{path}.input_audio", url)


# The field that holds the data of each kind of part other than text, and the function that reads it.
_MEDIA: dict[str, Callable[[str, Any], DataPart]] = {
    "image_url": _image,
    "file": _file,
    "file_data": _file,
    "input_audio": _audio,
}


def _from_url(path: str, url: Any) -> DataPart:
    """Decode a data URL."""
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        raise RequestError(f"{path} is not a base64 data: URL. Other URLs are not downloaded.")
    try:
        return DataPart(base64.b64decode(data, validate=True), head[5:].split(";")[0])
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"{path} is not valid base64: {error}.") from error


def _calls(path: str, message: dict[str, Any]) -> Iterator[ToolCallPart]:
    """Yield the tool calls of a message in Chat Completions format."""
    for index, call in enumerate(_list(message, "tool_calls", f"{path}.tool_calls")):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(f"{path}.tool_calls[{index}].function has no name.")
        yield ToolCallPart(str(call.get("id", "")), function["name"], function.get("arguments", ""))


def _tool(index: int, value: Any) -> Tool:
    function = value.get("function", value) if isinstance(value, dict) else value
    try:
        return msgspec.convert(function, Tool)
    except msgspec.ValidationError as error:
        raise RequestError(f"tools[{index}] is invalid: {error}. A tool needs at least a name.") from error


# --- Accuracy ---

_BARS, _REFUSED = "▁▂▃▄▅▆▇█", "x"
# Errors of this size or more have the highest bar.
_HIGHEST_ERROR = 0.10
_LABEL_WIDTH = 16


@click.command()
@json_option("Output JSON Lines, one object per model.")
def accuracy(as_json: bool) -> None:
    """Compare token estimates with the counts that gateways reported, for each model.

    Errors are relative to the reported token count. "uncalibrated" shows what the errors would be without
    learning from earlier responses. Each bar is one request, from no error to 10 % or more.

    First requests of conversations, later ones, and requests that were counted before are also shown apart.
    Reports that cannot be the size of the prompt are refused: they are counted, and not learned from.
    """
    models = asyncio.run(_use_estimator(lambda estimator: estimator.accuracy()))
    if as_json:
        print_json_lines(models)
    elif models:
        _show(models)
    else:
        click.echo("No data yet. Send a request first, for example with `tollbridge ask`.", err=True)


def _show(models: list[Accuracy]) -> None:
    for model in models:
        click.echo(
            f"{one_line(model.model)}: {format_count(model.requests, 'request')}, {model.exact:,} exact"
        )
        errors = ErrorSummary(model.requests, model.median, model.p95, model.worst_under)
        _show_line("error", _describe(errors))
        kinds = {"first": model.openings, "later": model.later, "repeated": model.repeats}
        for label, summary in kinds.items():
            if summary.requests:
                _show_line(label, f"{format_count(summary.requests, 'request')}, {_describe(summary)}")
        if model.refused:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in model.refused.items())
            _show_line("refused", f"{format_count(sum(model.refused.values()), 'report')}: {reasons}")
        _show_line("uncalibrated", f"median {model.plain_median:.1%}, 95th percentile {model.plain_p95:.1%}")
        latest = -max(8, terminal_width(sys.stdout) - _LABEL_WIDTH)
        _show_line("recent", plot(model.recent[latest:], model.recent_kinds[latest:]))
    scale = f"{_BARS[0]} no error, {_BARS[-1]} {_HIGHEST_ERROR:.0%} or more, {_REFUSED} refused"
    legend = (
        f"Each bar is one request: {scale}. "
        '"first" are the first requests of conversations, "later" the other ones, "repeated" those that were '
        'counted before; "uncalibrated" are the errors without learning from earlier responses.'
    )
    click.echo(dim(wrap_line(legend, sys.stdout), sys.stdout))


def _show_line(label: str, text: str) -> None:
    click.echo(f"  {label:<{_LABEL_WIDTH - 2}}{wrap_line(text, sys.stdout, _LABEL_WIDTH)}")


def _describe(errors: ErrorSummary) -> str:
    worst = f"worst undercount {abs(errors.worst_under):.1%}"
    return f"median {errors.median:.1%}, 95th percentile {errors.p95:.1%}, {worst}"


def plot(errors: Sequence[float], kinds: Sequence[str]) -> str:
    """Return one bar per error, oldest first. The lowest bar is no error; refused reports have a cross."""
    top = len(_BARS) - 1
    return "".join(
        _REFUSED if kind == "refused" else _BARS[min(top, -int(-abs(error) / _HIGHEST_ERROR * top // 1))]
        for error, kind in zip(errors, kinds, strict=True)
    )
