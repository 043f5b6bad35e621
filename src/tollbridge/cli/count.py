"""`tollbridge count` and `accuracy`: count tokens, and show how close estimates were to reported counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

import click
import msgspec

from tollbridge.cli.engine import use_engine
from tollbridge.cli.options import json_option, model_option, read_file
from tollbridge.cli.output import print_json_lines, to_json
from tollbridge.cli.terminal import dim, format_count, one_line, terminal_width, wrap_line
from tollbridge.config.loading import load_settings
from tollbridge.engine import Engine
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.protocols.caller_request import (
    ROLES,
    RequestObject,
    invalid_field,
    read_content,
    read_data_url,
)
from tollbridge.tokens.ledger import EstimationResult, Method
from tollbridge.tokens.prediction import Share
from tollbridge.tokens.records import Accuracy, ErrorSummary
from tollbridge.tokens.tokenizers import BASE, TextFeatures, family_of, pieces, tokenizer
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
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


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@model_option("Model whose tokenizer to use, e.g. openai/gpt-5. Default: the `model` setting.")
@click.option(
    "--messages",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Count a conversation instead of a text: a JSON list of messages in Chat Completions format, or an "
    "object with `messages` and `tools`.",
)
@json_option("Output one JSON object.")
def count(file: Path | None, model: str | None, messages: Path | None, as_json: bool) -> None:
    """Count the tokens in FILE, or in a conversation with --messages.

    Use - as FILE to read from standard input. Uses what was learned from earlier responses. Works offline.
    """
    path = messages or file
    if path is None:
        raise click.UsageError("Provide a FILE (- for standard input) or --messages FILE.json.")
    if file is not None and messages is not None:
        raise click.UsageError("Provide either FILE or --messages, not both.")
    data = read_file(path, FILE_LIMIT, allow_dash=True)
    model = model or load_settings().settings.model
    if not model:
        raise click.UsageError("Name the model with --model, TOLLBRIDGE_MODEL or the setting `model`.")

    async def show_count(engine: Engine) -> None:
        if messages is not None:
            _show_conversation(model, engine.estimator.estimate_request(read_request(model, data)), as_json)
        else:
            _show_text(count_text(engine.estimator, model, _decode_text(data, path)), as_json)

    try:
        use_engine(show_count)
    except RequestError as error:
        raise click.ClickException(one_line(error.message)) from error


def _decode_text(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        name = "Standard input" if str(path) == "-" else path
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


_ROLES = {**ROLES, "tool": Role.USER}
_EXPECTED_FORMAT = 'Expected a list of {"role": …, "content": "…"}, or {"messages": […], "tools": […]}.'
_BOM = b"\xef\xbb\xbf"


def read_request(model: str, data: bytes) -> ChatRequest:
    """Parse a conversation, in JSON: a list of messages, or an object with `messages` and `tools`.

    The messages are those of Chat Completions or Responses, or our own `Message`. Unlike in a request to
    `serve`, nothing is left out: everything must be counted.

    Raises:
        RequestError: The data is invalid. The message names the field, such as `messages[1].role`.
    """
    try:
        document = read_json(data.removeprefix(_BOM))
        body = RequestObject({"messages": document} if isinstance(document, list) else document)
        if not isinstance(body.get("messages"), list):
            raise invalid_field("messages", "an array")
        messages = tuple(map(_message, body.objects("messages")))
        tools = [
            _convert(tool.raw.get("function", tool.raw), Tool, tool.path) for tool in body.objects("tools")
        ]
        return ChatRequest(model=model, messages=messages, tools=tuple(tools))
    except RequestError as error:
        raise RequestError(f"{error.message} {_EXPECTED_FORMAT}") from error
    except ValueError as error:
        raise RequestError(f"The conversation is not valid JSON: {error}. {_EXPECTED_FORMAT}") from error


def _message(message: RequestObject) -> Message:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise invalid_field(message.path_of("role"), f"one of {', '.join(_ROLES)}")
    if message.get("parts") is not None:
        return _convert({**message.raw, "role": _ROLES[role]}, Message, message.path)
    calls = tuple(map(_call, message.objects("tool_calls")))
    parts: tuple[TextPart | DataPart, ...] = ()
    if content is not None or not calls:
        parts = tuple(map(_part, read_content(content, message.path_of("content"))))
    if role == "tool":
        return Message(Role.USER, (ToolResultPart(str(message.get("tool_call_id") or ""), parts),))
    return Message(_ROLES[role], (*parts, *calls), message.optional("name", str))


def _part(part: RequestObject) -> TextPart | DataPart:
    match part.raw:
        case {"text": str(text)}:
            return TextPart(text)
        case {"image_url": {"url": str(url)} | str(url)} if url.startswith(("http://", "https://")):
            return DataPart(b"", "image/png")  # not downloaded; counted as an image of a typical size
        case {"image_url": {"url": url} | url} | {"file": {"file_data": url} | url} | {"file_data": url}:
            file = read_data_url(url)
        case {"input_audio": {"data": data, **audio}}:
            file = read_data_url(f"data:audio/{audio.get('format', 'wav')};base64,{data}")
        case _:
            raise invalid_field(part.path, "an object with a text, image_url, file or input_audio")
    if file is None:
        raise invalid_field(part.path, "a base64 data: URL (other URLs are not downloaded)")
    return file


def _call(call: RequestObject) -> ToolCallPart:
    function = call.inner("function")
    return ToolCallPart(str(call.get("id") or ""), function.text("name"), function.raw.get("arguments", ""))


def _convert(value: object, kind: type[T], path: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RequestError(f"{path} is invalid: {error}.") from error


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

    async def read_accuracy(engine: Engine) -> list[Accuracy]:
        return engine.estimator.accuracy()

    models = use_engine(read_accuracy)
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
        _show_line("error", _describe(model))
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


def _describe(errors: Accuracy | ErrorSummary) -> str:
    worst = f"worst undercount {abs(errors.worst_under):.1%}"
    return f"median {errors.median:.1%}, 95th percentile {errors.p95:.1%}, {worst}"


def plot(errors: Sequence[float], kinds: Sequence[str]) -> str:
    """Return one bar per error, oldest first. The lowest bar is no error; refused reports have a cross."""
    top = len(_BARS) - 1
    return "".join(
        _REFUSED if kind == "refused" else _BARS[min(top, -int(-abs(error) / _HIGHEST_ERROR * top // 1))]
        for error, kind in zip(errors, kinds, strict=True)
    )
