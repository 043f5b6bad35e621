"""`tollbridge ask`: one question, one answer."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import click
import msgspec

from tollbridge.cli.connection import connect, pick_model
from tollbridge.cli.errors import print_error
from tollbridge.cli.options import (
    PROMPT_LIMIT,
    ConnectionOptions,
    PromptOptions,
    connection_options,
    prompt_options,
    record_options,
    ui_stream_option,
)
from tollbridge.cli.run_turn import Conversation, TurnRunner, open_accounting, show_changes
from tollbridge.cli.screen import Screen, usage_line
from tollbridge.cli.summary import summarise, to_json
from tollbridge.config.paths import database_file
from tollbridge.storage.tracker import open_tracker
from tollbridge.types.messages import Message, Role, TextPart
from tollbridge.types.text import replace_surrogates


@click.command()
@click.argument("prompt")
@prompt_options
@connection_options
@ui_stream_option
@record_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def ask(prompt: str, wishes: PromptOptions, where: ConnectionOptions, as_json: bool) -> int:
    """Ask one question and print the answer. PROMPT is the question, or - to read it from standard input."""
    question = Message(Role.USER, (TextPart(_read(prompt)), *wishes.images))
    return asyncio.run(_ask(question, wishes, where, as_json))


def _read(prompt: str) -> str:
    if prompt == "-":
        try:
            given = sys.stdin.buffer.read(PROMPT_LIMIT + 1)
            if len(given) > PROMPT_LIMIT:
                most = f"{PROMPT_LIMIT >> 20} MiB"
                raise click.UsageError(
                    f"Standard input is longer than {most}, the most that is asked at once."
                )
            prompt = given.decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"Standard input is not UTF-8 text (byte {error.start}).") from error
    if not prompt.strip():
        raise click.UsageError("The question is empty. Write one, or give - and pipe it in.")
    return replace_surrogates(prompt)


async def _ask(question: Message, wishes: PromptOptions, where: ConnectionOptions, as_json: bool) -> int:
    async with connect(where) as connection:
        model = await pick_model(connection, wishes.model)
        request = Conversation(model, wishes.system, wishes.effort).request(question)
        async with open_accounting() as toll:
            listener = TurnRunner(connection, None if as_json else Screen(sys.stdout, sys.stderr), toll)
            with contextlib.closing(open_tracker(database_file())) as tracker:
                await listener.listen(request, tracker)
            if as_json:
                click.echo(to_json(_as_json(listener, model)))
            elif listener.error is None:
                screen = Screen(sys.stdout, sys.stderr)
                show_changes(listener.changes, screen, "; --json has them all")
                screen.note(usage_line(listener.usage, listener.timing))
            if listener.error is not None:
                print_error(listener.error, connection.way)
    return int(listener.error is not None)


def _as_json(listener: TurnRunner, model: str) -> dict[str, object]:
    timing = listener.timing
    return {
        "model": model,
        **msgspec.to_builtins(summarise(listener.events)),
        "changes": list(listener.changes),
        "counts": dict(listener.counts),
        "timing": {
            "first_token_seconds": timing.first_token,
            "total_seconds": timing.total,
            "tokens_per_second": timing.tokens_per_second(listener.usage),
        },
    }
