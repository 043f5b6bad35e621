"""`tollbridge ask`: one question, one answer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from tollbridge.answer import Answer
from tollbridge.cli.connection import connect, pick_model
from tollbridge.cli.conversations import open_conversation
from tollbridge.cli.options import (
    ConnectionOptions,
    KeepOptions,
    PromptOptions,
    connection_options,
    json_option,
    keep_options,
    over_budget_option,
    prompt_options,
    read_file,
    record_options,
    ui_stream_option,
)
from tollbridge.cli.output import describe_answer, to_json
from tollbridge.cli.prompt import has_piped_input, read_standard_input
from tollbridge.cli.run_turn import TurnRunner, show_changes
from tollbridge.cli.screen import Screen, tokens_per_second, usage_line
from tollbridge.types.messages import Message, OutputFormat, Role, TextPart
from tollbridge.types.text import read_json, replace_surrogates


@click.command()
@click.argument("words", nargs=-1, metavar="[PROMPT]...")
@prompt_options
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=lambda _context, _option, path: None if path is None else _read_schema(path),
    help="JSON Schema file; the answer is JSON that matches it.",
)
@keep_options
@connection_options
@ui_stream_option
@record_options
@over_budget_option
@click.option("--no-stream", is_flag=True, help="Print the answer when it is complete.")
@json_option("Output the full result as one JSON object.")
def ask(
    words: tuple[str, ...],
    wishes: PromptOptions,
    schema: OutputFormat | None,
    keep: KeepOptions,
    where: ConnectionOptions,
    over_budget: bool,
    no_stream: bool,
    as_json: bool,
) -> int:
    """Send one prompt and print the answer.

    Standard input is part of the prompt if it is piped: `cat notes.txt | tollbridge ask Sum this up`. Without
    PROMPT, or with - as PROMPT, it is the whole prompt.
    """
    question = Message(Role.USER, (TextPart(_read_prompt(words)), *wishes.attachments))
    if schema is not None:
        parameters = {**wishes.parameters, "output_format": schema}
        wishes = msgspec.structs.replace(wishes, parameters=parameters, raw=True)
    options = {"as_json": as_json, "stream": not no_stream, "over_budget": over_budget}
    return asyncio.run(_ask(question, wishes, keep, where, **options))


def _read_prompt(words: tuple[str, ...]) -> str:
    """Return the prompt: the text of standard input, if there is one, and the words of the command line."""
    text = " ".join(word for word in words if word != "-")
    piped = read_standard_input() if "-" in words or has_piped_input() else ""
    if not text.strip() and not piped.strip():
        raise click.UsageError("The prompt is empty. Pass a prompt, or pipe a text to standard input.")
    return replace_surrogates("\n\n".join(part for part in (piped.strip("\n"), text) if part.strip()))


def _read_schema(path: Path) -> OutputFormat:
    try:
        schema = read_json(read_file(path))
    except ValueError as error:
        raise click.ClickException(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(schema, dict):
        raise click.ClickException(f"{path} is not a JSON Schema: expected a JSON object.")
    # The name of a format may have letters, digits, _ and -.
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in path.stem)
    return OutputFormat(name[:64] or "answer", schema)


async def _ask(
    question: Message,
    wishes: PromptOptions,
    keep: KeepOptions,
    where: ConnectionOptions,
    *,
    as_json: bool,
    stream: bool,
    over_budget: bool,
) -> int:
    async with connect(where) as session:
        conversation = await open_conversation(
            keep, session.settings, wishes, lambda name: pick_model(session, name)
        )
        screen = None if as_json else Screen(sys.stdout, sys.stderr, raw=wishes.raw)
        runner = TurnRunner(session, screen, stream=stream)
        await runner.run(conversation.request(question), over_budget=over_budget)
        answer = runner.answer
        if conversation.add(question, answer.parts):
            conversation.keep(session.secrets)
        if as_json:
            click.echo(to_json(_as_json(answer, conversation.model)))
        elif screen is not None and answer.error is None:
            show_changes(answer.changes, screen, "; use --json to see all")
            screen.note(usage_line(answer))
        if answer.error is not None:
            session.print_error(answer.error)
    return int(answer.error is not None)


def _as_json(answer: Answer, model: str) -> dict[str, Any]:
    return {
        "model": model,
        **describe_answer(answer),
        "changes": list(answer.changes),
        "counts": dict(answer.counts),
        "timing": {
            "first_token_seconds": answer.first,
            "total_seconds": answer.duration,
            "tokens_per_second": tokens_per_second(answer),
        },
    }
