"""`tollbridge count`: the tokens of a text or of a conversation, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import click
import msgspec

from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import one_line
from tollbridge.core.errors import RequestError
from tollbridge.core.json import read_json
from tollbridge.core.messages import (
    ChatRequest,
    Message,
    Part,
    Role,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.core.places import database_file
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.tokens import EstimationResult

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "tool": Role.USER,
    "assistant": Role.ASSISTANT,
}
_SHAPE = 'Give a list of {"role": …, "content": "…"}, or {"messages": […], "tools": […]}.'


@click.command()
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--model", "-m", required=True, help="Whose tokens: openai/gpt-5, anthropic/claude-sonnet-4.5…")
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
            _show(model, estimator.estimate_request(read_request(model, messages.read())), as_json)
        elif file is not None:
            tokens = estimator.estimate_text(model, file.read().decode("utf-8", "replace"))
            click.echo(to_json({"model": model, "tokens": tokens}) if as_json else f"{tokens:,} tokens")
    finally:
        estimator.close()


def read_request(model: str, data: bytes) -> ChatRequest:
    """A conversation as people write it down."""
    try:
        read = read_json(data)
    except ValueError as error:
        raise RequestError(f"The conversation is not JSON: {error}. {_SHAPE}") from error
    given = {"messages": read} if isinstance(read, list) else read
    if not isinstance(given, dict) or not isinstance(given.get("messages"), list):
        raise RequestError(f"The conversation has no list of messages. {_SHAPE}")
    return ChatRequest(
        model=model,
        messages=tuple(_message(place, message) for place, message in enumerate(given["messages"])),
        tools=tuple(_tool(place, tool) for place, tool in enumerate(given.get("tools") or ())),
    )


def _message(place: int, given: Any) -> Message:
    if not isinstance(given, dict) or given.get("role") not in _ROLES:
        known = ", ".join(_ROLES)
        raise RequestError(f"messages[{place}].role is none of {known}. {_SHAPE}")
    role = _ROLES[given["role"]]
    if "parts" in given:  # our own shape, whole
        try:
            return msgspec.convert({**given, "role": role}, Message)
        except msgspec.ValidationError as error:
            raise RequestError(f"messages[{place}] cannot be read: {error}.") from error
    parts: tuple[Part, ...] = (*_content(place, given), *_calls(place, given))
    if given["role"] == "tool":
        texts = tuple(part for part in parts if isinstance(part, TextPart))
        return Message(role, (ToolResultPart(str(given.get("tool_call_id", "")), texts),))
    return Message(role, parts)


def _content(place: int, given: dict[str, Any]) -> Iterator[TextPart]:
    content = given.get("content")
    if isinstance(content, str):
        yield TextPart(content)
    elif isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        yield from (TextPart(str(part["text"])) for part in content)
    elif content is not None or not given.get("tool_calls"):
        raise RequestError(f"messages[{place}].content is neither text nor a list of texts. {_SHAPE}")


def _calls(place: int, given: dict[str, Any]) -> Iterator[ToolCallPart]:
    """Calls as chat completions spell them."""
    for number, call in enumerate(given.get("tool_calls") or ()):
        called = call.get("function") if isinstance(call, dict) else None
        if not isinstance(called, dict) or not isinstance(called.get("name"), str):
            raise RequestError(f"messages[{place}].tool_calls[{number}].function has no name.")
        yield ToolCallPart(str(call.get("id", "")), called["name"], called.get("arguments", ""))


def _tool(place: int, given: Any) -> Tool:
    inner = given.get("function", given) if isinstance(given, dict) else given
    try:
        return msgspec.convert(inner, Tool)
    except msgspec.ValidationError as error:
        raise RequestError(f"tools[{place}] cannot be read: {error}. A tool has at least a name.") from error


def _show(model: str, estimate: EstimationResult, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"model": model, **msgspec.to_builtins(estimate)}))
        return
    click.echo(
        f"{estimate.tokens:,} tokens for {one_line(model)} "
        f"({estimate.method}, confidence {estimate.confidence:.0%})"
    )
    for part in estimate.parts:
        click.echo(f"  {part.tokens:>9,}  {part.label}")
