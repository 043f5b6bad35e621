"""`tollbridge ask`: one question, one answer."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from tollbridge.cli.connection import connect, pick_model
from tollbridge.cli.failures import explain
from tollbridge.cli.listening import Listener
from tollbridge.cli.options import Images, Where, request_options, where_options
from tollbridge.cli.screen import Screen
from tollbridge.cli.summary import summarise, to_json
from tollbridge.cli.toll import toll_line
from tollbridge.core.messages import ChatRequest, Message, Role, TextPart


@click.command()
@click.argument("prompt")
@request_options
@where_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def ask(
    prompt: str,
    model: str | None,
    system: str | None,
    images: Images,
    effort: str | None,
    base_url: str | None,
    local: bool,
    as_json: bool,
) -> int:
    """Ask one question and print the answer. PROMPT is the question, or - to read it from standard input."""
    question = Message(Role.USER, (TextPart(_read(prompt)), *images))
    messages = (question,) if system is None else (Message(Role.SYSTEM, (TextPart(system),)), question)
    draft = ChatRequest(model=model or "", messages=messages, reasoning_effort=effort)
    return asyncio.run(_ask(draft, Where(base_url, local), as_json))


def _read(prompt: str) -> str:
    if prompt == "-":
        try:
            prompt = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"Standard input is not UTF-8 text (byte {error.start}).") from error
    if not prompt.strip():
        raise click.UsageError("The question is empty. Write one, or give - and pipe it in.")
    return prompt


async def _ask(draft: ChatRequest, where: Where, as_json: bool) -> int:
    async with connect(where) as connection:
        model = await pick_model(connection, draft.model)
        listener = Listener(connection.client, None if as_json else Screen(sys.stdout, sys.stderr))
        await listener.listen(msgspec.structs.replace(draft, model=model))
    if as_json:
        click.echo(to_json(_as_json(listener, model)))
    elif listener.error is None:
        Screen(sys.stdout, sys.stderr).note(toll_line(listener.usage, listener.timing))
    if listener.error is not None:
        click.echo(f"Error: {explain(listener.error)}", err=True)
        return 1
    return 0


def _as_json(listener: Listener, model: str) -> dict[str, object]:
    timing = listener.timing
    return {
        "model": model,
        **msgspec.to_builtins(summarise(listener.events)),
        "timing": {
            "first_token_seconds": timing.first_token,
            "total_seconds": timing.total,
            "tokens_per_second": timing.tokens_per_second(listener.usage),
        },
    }
