"""`tollbridge ask`: one question, one answer."""

from __future__ import annotations

import asyncio
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
    over_budget_option,
    prompt_options,
    record_options,
    ui_stream_option,
)
from tollbridge.cli.run_turn import Conversation, TurnRunner, show_changes
from tollbridge.cli.screen import Screen, usage_line
from tollbridge.cli.summary import summarise, to_json
from tollbridge.types.messages import Message, Role, TextPart
from tollbridge.types.text import replace_surrogates


@click.command()
@click.argument("prompt")
@prompt_options
@connection_options
@ui_stream_option
@record_options
@over_budget_option
@click.option("--json", "as_json", is_flag=True, help="Output the full result as one JSON object.")
def ask(
    prompt: str, wishes: PromptOptions, where: ConnectionOptions, as_json: bool, over_budget: bool
) -> int:
    """Send one prompt and print the answer. Use - to read the prompt from standard input."""
    question = Message(Role.USER, (TextPart(_read(prompt)), *wishes.images))
    return asyncio.run(_ask(question, wishes, where, as_json, over_budget))


def _read(prompt: str) -> str:
    if prompt == "-":
        try:
            data = sys.stdin.buffer.read(PROMPT_LIMIT + 1)
            if len(data) > PROMPT_LIMIT:
                raise click.UsageError(f"Standard input exceeds the {PROMPT_LIMIT >> 20} MiB limit.")
            prompt = data.decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"Standard input is not UTF-8 text (byte {error.start}).") from error
    if not prompt.strip():
        raise click.UsageError("The prompt is empty. Pass a prompt, or use - to read from standard input.")
    return replace_surrogates(prompt)


async def _ask(
    question: Message, wishes: PromptOptions, where: ConnectionOptions, as_json: bool, over_budget: bool
) -> int:
    async with connect(where) as session:
        model = await pick_model(session, wishes.model)
        request = Conversation(model, wishes.system, wishes.effort).request(question)
        runner = TurnRunner(session, None if as_json else Screen(sys.stdout, sys.stderr))
        await runner.run(request, over_budget=over_budget)
        if as_json:
            click.echo(to_json(_as_json(runner, model)))
        elif runner.error is None:
            screen = Screen(sys.stdout, sys.stderr)
            show_changes(runner.changes, screen, "; use --json to see all")
            screen.note(usage_line(runner.usage, runner.timing, runner.cost))
        if runner.error is not None:
            print_error(runner.error, session.kind)
    return int(runner.error is not None)


def _as_json(runner: TurnRunner, model: str) -> dict[str, object]:
    timing = runner.timing
    return {
        "model": model,
        **msgspec.to_builtins(summarise(runner.events)),
        "changes": list(runner.changes),
        "counts": dict(runner.counts),
        "timing": {
            "first_token_seconds": timing.first_token,
            "total_seconds": timing.total,
            "tokens_per_second": timing.tokens_per_second(runner.usage),
        },
    }
