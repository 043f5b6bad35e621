"""`tollbridge count`: the tokens of a text or of a conversation, and where they come from."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import IO, Any, Literal

import click
import msgspec

from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import counted, one_line
from tollbridge.config.paths import database_file
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.tokens.ledger import EstimationResult
from tollbridge.tokens.prediction import Share
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

# SECTION A conversation as people write it down: as chat completions and responses spell it, or in our own shape.

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "tool": Role.USER,
    "assistant": Role.ASSISTANT,
}
_SHAPE = 'Give a list of {"role": …, "content": "…"}, or {"messages": […], "tools": […]}.'
_BOM = b"\xef\xbb\xbf"


def read_request(model: str, data: bytes) -> ChatRequest:
    """Raises RequestError, which names the place, for what does not fit."""
    try:
        read = read_json(data.removeprefix(_BOM))
    except ValueError as error:
        raise RequestError(f"The conversation is not JSON: {error}. {_SHAPE}") from error
    given = {"messages": read} if isinstance(read, list) else read
    if not isinstance(given, dict) or not isinstance(given.get("messages"), list):
        raise RequestError(f"The conversation has no list of messages. {_SHAPE}")
    return ChatRequest(
        model=model,
        messages=tuple(_message(place, message) for place, message in enumerate(given["messages"])),
        tools=tuple(_tool(place, tool) for place, tool in enumerate(_list(given, "tools", "tools"))),
    )


def _list(given: dict[str, Any], name: str, place: str) -> list[Any]:
    found = given.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise RequestError(f"{place} is not a list. {_SHAPE}")
    return found


def _message(place: int, given: Any) -> Message:
    where = f"messages[{place}]"
    role = given.get("role") if isinstance(given, dict) else None
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(f"{where}.role is none of {', '.join(_ROLES)}. {_SHAPE}")
    if "parts" in given:  # our own shape, whole
        try:
            return msgspec.convert({**given, "role": _ROLES[role]}, Message)
        except msgspec.ValidationError as error:
            raise RequestError(f"{where} cannot be read: {error}.") from error
    contents = tuple(_contents(where, given))
    if role == "tool":
        return Message(_ROLES[role], (ToolResultPart(str(given.get("tool_call_id", "")), contents),))
    name = given.get("name")
    if name is not None and not isinstance(name, str):
        raise RequestError(f"{where}.name is not text.")
    parts: tuple[Part, ...] = (*contents, *_calls(where, given))
    return Message(_ROLES[role], parts, name)


def _contents(where: str, given: dict[str, Any]) -> Iterator[TextPart | DataPart]:
    content = given.get("content")
    if isinstance(content, str):
        yield TextPart(content)
    elif isinstance(content, list):
        for number, part in enumerate(content):
            yield _content(f"{where}.content[{number}]", part)
    elif content is not None or not given.get("tool_calls"):
        raise RequestError(f"{where}.content is neither text nor a list of parts. {_SHAPE}")


def _content(where: str, part: Any) -> TextPart | DataPart:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return TextPart(part["text"])
    for name, read in _MEDIA.items():
        if isinstance(part, dict) and name in part:
            return read(where, part[name])
    raise RequestError(f"{where} is no part we know: it has none of text, {', '.join(_MEDIA)}.")


def _image(where: str, given: Any) -> DataPart:
    url = given.get("url") if isinstance(given, dict) else given
    if isinstance(url, str) and url.startswith(("http://", "https://")):
        return DataPart(b"", "image/png")  # never fetched: counted as an image of a usual size
    return _from_url(f"{where}.image_url", url)


def _file(where: str, given: Any) -> DataPart:
    return _from_url(f"{where}.file", given.get("file_data") if isinstance(given, dict) else given)


def _sound(where: str, given: Any) -> DataPart:
    sound = given if isinstance(given, dict) else {}
    kind = sound.get("format", "wav")
    return _from_url(f"{where}.input_audio", f"data:audio/{kind};base64,{sound.get('data', '*')}")


# What a part that is not text is called, and how it is read.
_MEDIA: dict[str, Callable[[str, Any], DataPart]] = {
    "image_url": _image,
    "file": _file,
    "file_data": _file,
    "input_audio": _sound,
}


def _from_url(where: str, url: Any) -> DataPart:
    """The bytes inside a data URL."""
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        raise RequestError(f"{where} is not a data: URL in base64. What is elsewhere is not fetched.")
    try:
        return DataPart(base64.b64decode(data, validate=True), head[5:].split(";")[0])
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"{where} is not base64: {error}.") from error


def _calls(where: str, given: dict[str, Any]) -> Iterator[ToolCallPart]:
    """Calls as chat completions spell them."""
    for number, call in enumerate(_list(given, "tool_calls", f"{where}.tool_calls")):
        called = call.get("function") if isinstance(call, dict) else None
        if not isinstance(called, dict) or not isinstance(called.get("name"), str):
            raise RequestError(f"{where}.tool_calls[{number}].function has no name.")
        yield ToolCallPart(str(call.get("id", "")), called["name"], called.get("arguments", ""))


def _tool(place: int, given: Any) -> Tool:
    inner = given.get("function", given) if isinstance(given, dict) else given
    try:
        return msgspec.convert(inner, Tool)
    except msgspec.ValidationError as error:
        raise RequestError(f"tools[{place}] cannot be read: {error}. A tool has at least a name.") from error


# SECTION `tollbridge count`: the tokens of a text or of a conversation, and where they come from.

LIMIT = 256 * 1024 * 1024


class TextCount(msgspec.Struct, frozen=True):
    """`exact`: by the model's own vocabulary. `weighted`: by another's, or by samples, with what was learned.
    `characters`: no vocabulary could be loaded."""

    model: str
    tokens: int
    method: Literal["exact", "weighted", "characters"]
    vocabulary: str | None
    parts: tuple[Share, ...]


@click.command()
@click.argument("file", type=click.File("rb"), required=False)
@click.option(
    "--model",
    "-m",
    required=True,
    metavar="NAME",
    help="Whose tokens: openai/gpt-5, anthropic/claude-sonnet-4.5…",
)
@click.option(
    "--messages", type=click.File("rb"), metavar="FILE.json", help="A conversation instead of a text."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def count(file: IO[bytes] | None, model: str, messages: IO[bytes] | None, as_json: bool) -> None:
    """Count the tokens of FILE (- for standard input), or of a conversation.

    What was learned from earlier answers of the model is used, and nothing is sent anywhere.
    """
    if (file is None) == (messages is None):
        raise click.UsageError("Give a FILE (or -), or --messages FILE.json, and not both.")
    estimator = HybridTokenEstimator(database_file())
    try:
        if messages is not None:
            request = read_request(model, _read(messages))
            _show_conversation(model, estimator.estimate_request(request), as_json)
        elif file is not None:
            _show_text(count_text(estimator, model, _read(file).decode("utf-8", "replace")), as_json)
    except RequestError as error:
        raise click.ClickException(one_line(error.message)) from error
    finally:
        estimator.close()


def _read(file: IO[bytes]) -> bytes:
    try:
        data = file.read(LIMIT + 1)
    except OSError as error:
        raise RequestError(f"{file.name} cannot be read: {error.strerror or error}.") from error
    if len(data) > LIMIT:
        raise RequestError(f"{file.name} is longer than {LIMIT >> 20} MiB, the most that is counted.")
    return data


def count_text(estimator: HybridTokenEstimator, model: str, text: str) -> TextCount:
    """What a text comes to for a model, and how that is known."""
    family = family_of(model)
    tokens = estimator.estimate_text(model, text)
    vocabulary = family.vocabulary or BASE
    if tokenizer(vocabulary) is None:
        return TextCount(model, tokens, "characters", None, (Share("by characters", tokens),))
    raw = sum(number for _, number in TextFeatures().vector(family, text))
    parts = [Share(f"tokens of {vocabulary}", raw)]
    if tokens != raw:
        parts.append(
            Share("added for this model" if tokens > raw else "taken off for this model", tokens - raw)
        )
    exact = family.vocabulary is not None and tokens == raw and pieces(text)[1] == 1
    return TextCount(model, tokens, "exact" if exact else "weighted", vocabulary, tuple(parts))


def _show_text(found: TextCount, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(found))
        return
    by = f", vocabulary {found.vocabulary}" if found.vocabulary else ""
    click.echo(f"{counted(found.tokens, 'token')} for {one_line(found.model)} ({found.method}{by})")
    if len(found.parts) > 1:
        _show_parts(found.parts)


def _show_conversation(model: str, estimate: EstimationResult, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"model": model, **msgspec.to_builtins(estimate)}))
        return
    click.echo(
        f"{counted(estimate.tokens, 'token')} for {one_line(model)} "
        f"({estimate.method}, confidence {estimate.confidence:.0%})"
    )
    _show_parts(estimate.parts)


def _show_parts(parts: tuple[Share, ...]) -> None:
    for part in parts:
        click.echo(f"  {part.tokens:>9,}  {part.label}")
