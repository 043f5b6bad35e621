"""`tollbridge chat`: a conversation in the terminal.

Between answers the person types and nothing runs; during an answer the loop runs and Ctrl-C stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable

import click

from tollbridge.cli.connection import Connection, connect, pick_model
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
from tollbridge.cli.terminal import Paint, counted, one_line
from tollbridge.config.paths import database_file
from tollbridge.storage.tracker import UsageTracker, open_tracker
from tollbridge.turn import TokenAccounting
from tollbridge.types.messages import Message, Part, Role, TextPart
from tollbridge.types.text import replace_surrogates

PROMPT = "> "
HELP = """\
/new          forget what was said and begin again
/model NAME   go on with another model
/help         show this
/quit         leave (so does Ctrl-D)
Ctrl-C stops an answer."""


@click.command()
@prompt_options
@connection_options
@ui_stream_option
@record_options
def chat(wishes: PromptOptions, where: ConnectionOptions) -> int:
    """Talk with a model in the terminal. Questions can also be piped in, one a line."""
    with asyncio.Runner() as runner, contextlib.ExitStack() as leaving:
        stack = contextlib.AsyncExitStack()
        leaving.callback(lambda: runner.run(stack.aclose()))
        connection = runner.run(stack.enter_async_context(connect(where)))
        model = runner.run(pick_model(connection, wishes.model))
        conversation = Conversation(model, wishes.system, wishes.effort)
        tracker = leaving.enter_context(contextlib.closing(open_tracker(database_file())))
        toll = runner.run(stack.enter_async_context(open_accounting()))
        return _Chat(runner, connection, conversation, wishes.images, tracker, toll).talk()


def _read_line() -> str:
    if sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (its import gives `input` editing and history)
        return input(PROMPT)
    click.echo(PROMPT, err=True, nl=False)  # the answers go elsewhere, the prompt must not
    line = _piped_line()
    if not line:
        raise EOFError
    return line


def _piped_line() -> str:
    line = sys.stdin.readline(PROMPT_LIMIT + 1)
    if len(line) > PROMPT_LIMIT:
        most = f"{PROMPT_LIMIT >> 20} MiB"
        raise click.UsageError(
            f"A line of standard input is longer than {most}, the most that is asked at once."
        )
    return line


class _Chat:
    def __init__(
        self,
        runner: asyncio.Runner,
        connection: Connection,
        conversation: Conversation,
        images: tuple[Part, ...],
        tracker: UsageTracker,
        toll: TokenAccounting,
    ) -> None:
        self._runner = runner
        self._connection = connection
        self._tracker = tracker
        self._toll = toll
        self._conversation = conversation
        self._waiting = images  # shown to the model with the next question
        self._told: set[str] = set()  # changes that the person knows of
        self._failed = False
        self._by_hand = sys.stdin.isatty()
        self._commands: dict[str, Callable[[str], None]] = {
            "/new": self._new,
            "/model": self._model,
            "/help": lambda _: self._tell(HELP),
        }

    def talk(self) -> int:
        """Until the person leaves. Piped questions that failed are told by the exit code."""
        if self._by_hand:
            self._greet()
        while (line := self._next_line()) is not None:
            words = line.strip()
            name, _, rest = words.partition(" ")
            if name in ("/quit", "/exit"):
                break
            if name in self._commands:
                self._commands[name](rest.strip())
            elif name.startswith("/") and name[1:].isalpha():
                self._tell(f"There is no command {name}; /help lists them.")
            elif words:
                self._answer(line)
        return int(self._failed and not self._by_hand)

    def _next_line(self) -> str | None:
        """What the person typed, or `None` when they left."""
        if not self._by_hand:
            return _piped_line() or None
        while True:
            try:
                return _read_line()
            except EOFError:
                click.echo(err=True)
                return None
            except KeyboardInterrupt:
                self._tell("\nCtrl-D or /quit leaves.")

    def _answer(self, line: str) -> None:
        question = Message(Role.USER, (TextPart(replace_surrogates(line.strip("\n"))), *self._waiting))
        screen = Screen(sys.stdout, sys.stderr)
        listener = TurnRunner(self._connection, screen, self._toll)
        try:
            self._runner.run(listener.listen(self._conversation.request(question), self._tracker))
        except KeyboardInterrupt:
            if not self._by_hand:
                raise
            screen.note("[stopped]")
        if self._conversation.add(question, listener.parts):
            self._waiting = ()
        if listener.error is None:
            # The history is mended anew with every question; what was told once is not told again.
            show_changes([each for each in listener.changes if each not in self._told], screen)
            self._told.update(listener.changes)
            screen.note(usage_line(listener.usage, listener.timing))
        else:
            self._failed = True
            print_error(listener.error, self._connection.way)
        if self._by_hand:
            click.echo(err=True)

    def _greet(self) -> None:
        paint = Paint(sys.stderr)
        model = f"{paint.bold}{one_line(self._conversation.model)}{paint.plain}"
        click.echo(f"{model} on {one_line(self._connection.place)}", err=True)
        if self._waiting:
            self._tell(f"Your first question goes with {counted(len(self._waiting), 'image')}.")
        self._tell("Ctrl-C stops an answer, Ctrl-D leaves, /help shows more.\n")

    def _new(self, _rest: str) -> None:
        self._conversation.forget()
        self._tell("Forgotten. This is a new conversation.")

    def _model(self, name: str) -> None:
        if name and self._connection.way == "ui-stream":
            self._tell("The endpoint has a model of its own, and no other.")
            return
        if name:
            self._conversation.model = name
        self._tell(f"The model is {one_line(self._conversation.model)}.")

    def _tell(self, text: str) -> None:
        paint = Paint(sys.stderr)
        click.echo(f"{paint.dim}{text}{paint.plain}", err=True)
