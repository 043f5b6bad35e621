"""`tollbridge chat`: an interactive conversation in the terminal.

The event loop runs only during an answer, where Ctrl-C stops the answer; between answers `input` blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable

import click

from tollbridge.cli.connection import Session, connect, pick_model
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
from tollbridge.cli.terminal import Styles, format_count, one_line
from tollbridge.compat.parameters import SENSITIVE_NOTES
from tollbridge.types.messages import Message, Part, Role, TextPart
from tollbridge.types.text import replace_surrogates

PROMPT = "> "
HELP = """\
/new          start a new conversation
/model NAME   switch to another model
/over-budget  send the next message even if it exceeds a budget
/help         show this list
/quit         exit (or Ctrl-D)
Ctrl-C        stop the current answer"""


@click.command()
@prompt_options
@connection_options
@ui_stream_option
@record_options
@over_budget_option
def chat(wishes: PromptOptions, where: ConnectionOptions, over_budget: bool) -> int:
    """Start an interactive chat. If standard input is piped, it is read as prompts, one per line."""
    with asyncio.Runner() as runner, contextlib.ExitStack() as closing:
        stack = contextlib.AsyncExitStack()
        closing.callback(lambda: runner.run(stack.aclose()))
        session = runner.run(stack.enter_async_context(connect(where)))
        model = runner.run(pick_model(session, wishes.model))
        conversation = Conversation(model, wishes.system, wishes.effort)
        return _Chat(runner, session, conversation, wishes.images, over_budget=over_budget).run()


def _read_line() -> str:
    if sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (its import gives `input` editing and history)
        return input(PROMPT)
    click.echo(PROMPT, err=True, nl=False)  # standard output is redirected; the prompt must not be
    line = _piped_line()
    if not line:
        raise EOFError
    return line


def _piped_line() -> str:
    line = sys.stdin.readline(PROMPT_LIMIT + 1)
    if len(line) > PROMPT_LIMIT:
        raise click.UsageError(f"A line of standard input exceeds the {PROMPT_LIMIT >> 20} MiB limit.")
    return line


class _Chat:
    def __init__(
        self,
        runner: asyncio.Runner,
        session: Session,
        conversation: Conversation,
        images: tuple[Part, ...],
        *,
        over_budget: bool = False,
    ) -> None:
        self._runner = runner
        self._session = session
        self._conversation = conversation
        self._images = images  # attached to the next question
        self._over_budget = self._next_over_budget = over_budget
        self._shown_changes: set[str] = set()
        self._failed = False
        self._interactive = sys.stdin.isatty()
        self._commands: dict[str, Callable[[str], None]] = {
            "/new": self._new,
            "/model": self._model,
            "/over-budget": self._allow_over_budget,
            "/help": lambda _: self._print(HELP),
        }

    def run(self) -> int:
        """Answer questions until the user exits. The exit code is 1 if a piped question failed."""
        if self._interactive:
            self._print_greeting()
        while (line := self._next_line()) is not None:
            words = line.strip()
            name, _, rest = words.partition(" ")
            if name in ("/quit", "/exit"):
                break
            if name in self._commands:
                self._commands[name](rest.strip())
            elif name.startswith("/") and name[1:].replace("-", "").isalpha():
                self._print(f"Unknown command {name}. Type /help to list commands.")
            elif words:
                self._answer(line)
        return int(self._failed and not self._interactive)

    def _next_line(self) -> str | None:
        """Return the next line of input, or `None` at its end."""
        if not self._interactive:
            return _piped_line() or None
        while True:
            try:
                return _read_line()
            except EOFError:
                click.echo(err=True)
                return None
            except KeyboardInterrupt:
                self._print("\nPress Ctrl-D or type /quit to exit.")

    def _answer(self, line: str) -> None:
        question = Message(Role.USER, (TextPart(replace_surrogates(line.strip("\n"))), *self._images))
        screen = Screen(sys.stdout, sys.stderr)
        turn = TurnRunner(self._session, screen)
        try:
            request = self._conversation.request(question)
            self._runner.run(turn.run(request, over_budget=self._next_over_budget))
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            screen.note("[stopped]")
        self._next_over_budget = self._over_budget
        if self._conversation.add(question, turn.parts):
            self._images = ()
        if turn.error is None:
            # The history is normalized again for every question; each change is shown once, except those
            # that concern privacy or the meaning of the answer.
            shown = self._shown_changes - SENSITIVE_NOTES
            show_changes([change for change in turn.changes if change not in shown], screen)
            self._shown_changes.update(turn.changes)
            screen.note(usage_line(turn.usage, turn.timing, turn.cost))
        else:
            self._failed = True
            print_error(turn.error, self._session.kind)
        if self._interactive:
            click.echo(err=True)

    def _print_greeting(self) -> None:
        paint = Styles(sys.stderr)
        model = f"{paint.bold}{one_line(self._conversation.model)}{paint.plain}"
        click.echo(f"{model} on {one_line(self._session.place)}", err=True)
        if self._images:
            self._print(f"Attached to your first message: {format_count(len(self._images), 'image')}.")
        self._print("Ctrl-C: stop · Ctrl-D: exit · /help: commands\n")

    def _new(self, _rest: str) -> None:
        self._conversation.clear()
        self._print("Started a new conversation.")

    def _model(self, name: str) -> None:
        if name and self._session.kind == "ui-stream":
            self._print("This endpoint does not support switching models.")
            return
        if name:
            self._conversation.model = name
        self._print(f"Now using {one_line(self._conversation.model)}.")

    def _allow_over_budget(self, _rest: str) -> None:
        self._next_over_budget = True
        self._print("The next message is sent even if it exceeds a budget.")

    def _print(self, text: str) -> None:
        paint = Styles(sys.stderr)
        click.echo(f"{paint.dim}{text}{paint.plain}", err=True)
