"""`tollbridge chat`: an interactive conversation in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import click

from tollbridge.catalog.models import filter_models
from tollbridge.cli.connection import Session, connect, pick_model
from tollbridge.cli.conversations import (
    Conversation,
    open_conversation,
    read_conversation,
    write_conversation,
)
from tollbridge.cli.options import (
    ConnectionOptions,
    KeepOptions,
    PromptOptions,
    connection_options,
    keep_options,
    over_budget_option,
    prompt_options,
    read_attachment,
    record_options,
    ui_stream_option,
)
from tollbridge.cli.output import to_json
from tollbridge.cli.prompt import Argument, ChatPrompt, hold_keyboard, read_piped_line, restore_echo
from tollbridge.cli.run_turn import TurnRunner, show_changes
from tollbridge.cli.screen import Screen, usage_line
from tollbridge.cli.terminal import bold, dim, format_count, one_line
from tollbridge.compat.fields import SENSITIVE_NOTES
from tollbridge.protocols import find_protocol
from tollbridge.transport.files import data_folder
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Usage
from tollbridge.types.messages import DataPart, Message, Role, TextPart
from tollbridge.types.text import replace_surrogates

_KEYS = """\
Alt-Enter     start a new line (a pasted text keeps its lines)
Tab           complete a command, a model or a file
Up, Ctrl-R    earlier prompts
Ctrl-C        stop the current answer
Ctrl-D        exit"""


@click.command()
@prompt_options
@keep_options
@connection_options
@ui_stream_option
@record_options
@over_budget_option
def chat(wishes: PromptOptions, keep: KeepOptions, where: ConnectionOptions, over_budget: bool) -> int:
    """Start an interactive chat. If standard input is piped, it is read as prompts, one per line."""
    with asyncio.Runner() as runner, contextlib.ExitStack() as closing:
        stack = contextlib.AsyncExitStack()
        closing.callback(lambda: runner.run(stack.aclose()))
        closing.callback(restore_echo)
        with hold_keyboard() as typed:
            session = runner.run(stack.enter_async_context(connect(where)))
            conversation = runner.run(
                open_conversation(keep, session.settings, wishes, lambda name: pick_model(session, name))
            )
            chat = _Chat(runner, session, conversation, wishes, over_budget=over_budget)
            chat.start()
        return chat.run(typed.text)


class _Command(NamedTuple):
    """A command of the chat: how it is used, what it does, and what is completed after it."""

    usage: str
    summary: str
    run: Callable[[str], None]
    argument: Argument = None


class _Chat:
    def __init__(
        self,
        runner: asyncio.Runner,
        session: Session,
        conversation: Conversation,
        wishes: PromptOptions,
        *,
        over_budget: bool = False,
    ) -> None:
        self._runner = runner
        self._session = session
        self._conversation = conversation
        self._attachments = wishes.attachments  # of the next question
        self._raw = wishes.raw
        self._over_budget = self._next_over_budget = over_budget
        self._shown_changes: set[str] = set()
        self._saved_files: set[Path] = set()
        self._spending: list[tuple[Usage | None, Decimal | None]] = []  # of each answer
        self._typed = ""  # during the start or the last answer
        self._failed = False
        self._exit = False
        self._interactive = sys.stdin.isatty()
        self._commands = {
            "/new": _Command("/new", "start a new conversation", self._new),
            "/model": _Command("/model NAME", "switch to another model", self._model, "model"),
            "/edit": _Command("/edit", "write the next prompt in $EDITOR", self._edit),
            "/file": _Command("/file PATH", "attach a file to the next prompt", self._attach, "file"),
            "/save": _Command("/save PATH", "save the conversation (.json or .md)", self._save, "file"),
            "/load": _Command("/load PATH", "continue a saved conversation (.json)", self._load, "file"),
            "/cost": _Command("/cost", "show the tokens and the cost of this chat", self._cost),
            "/over-budget": _Command(
                "/over-budget",
                "send the next message even if it exceeds a budget",
                self._allow_over_budget,
            ),
            "/help": _Command("/help", "show this list", self._help),
            "/quit": _Command("/quit", "exit", self._quit),
            "/exit": _Command("", "", self._quit),
        }
        history = data_folder() / "prompt_history" if session.settings.prompt_history else None
        arguments = {name: command.argument for name, command in self._commands.items() if command.usage}
        self._prompt = ChatPrompt(arguments, self._model_ids, history)

    def start(self) -> None:
        """Greet the user, and load what the prompt needs."""
        if not self._interactive:
            return
        model = bold(one_line(self._conversation.model), sys.stderr)
        click.echo(f"{model} on {one_line(self._session.place)}", err=True)
        if self._conversation.messages:
            count = format_count(len(self._conversation.messages), "message")
            self._print(f"Continuing a conversation with {count}.")
        if self._attachments:
            only_images = all(isinstance(part, DataPart) for part in self._attachments)
            count = format_count(len(self._attachments), "image" if only_images else "file")
            self._print(f"Attached to your first message: {count}.")
        self._print("Ctrl-C: stop · Ctrl-D: exit · /help: commands\n")
        self._prompt.load()

    def run(self, typed: str = "") -> int:
        """Answer questions until the user exits. The exit code is 1 if a piped question failed.

        The first prompt starts with `typed`, which the user typed before it.
        """
        self._typed = typed
        while not self._exit and (text := self._next_prompt()) is not None:
            name, _, rest = text.strip().partition(" ")
            if command := self._commands.get(name):
                try:
                    command.run(rest.strip())
                except click.ClickException as error:
                    self._print(f"Error: {error.message}")  # without the usage of the program
            elif name.startswith("/") and name[1:].replace("-", "").isalpha() and "\n" not in text.strip():
                self._print(f"Unknown command {name}. Type /help to list commands.")
            elif text.strip():
                self._answer(text)
        return int(self._failed and not self._interactive)

    def _next_prompt(self) -> str | None:
        """Return the next prompt, or `None` at the end of the input."""
        if not self._interactive:
            return read_piped_line() or None
        typed, self._typed = self._typed, ""
        while True:
            try:
                return self._prompt.read(self._runner, typed)
            except EOFError:
                click.echo(err=True)
                return None
            except KeyboardInterrupt:
                typed = ""
                self._print("\nPress Ctrl-D or type /quit to exit.")

    def _answer(self, text: str) -> None:
        parts = (TextPart(replace_surrogates(text.strip("\n"))), *self._attachments)
        question = Message(Role.USER, parts)
        screen = Screen(sys.stdout, sys.stderr, raw=self._raw)
        turn = TurnRunner(self._session, screen)
        with hold_keyboard() as typed:
            try:
                request = self._conversation.request(question)
                self._runner.run(turn.run(request, over_budget=self._next_over_budget))
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                screen.note("[stopped]")
        self._next_over_budget = self._over_budget
        self._typed = typed.text
        answer = turn.answer
        self._spending.append((answer.usage, answer.cost.charge))
        if self._conversation.add(question, answer.parts):
            self._attachments = ()
            self._conversation.keep(self._session.secrets)
        if answer.error is None:
            # The history is normalized again for every question; each change is shown once, except those
            # that concern privacy or the meaning of the answer.
            shown = self._shown_changes - SENSITIVE_NOTES
            show_changes([change for change in answer.changes if change not in shown], screen)
            self._shown_changes.update(answer.changes)
            screen.note(usage_line(answer))
        else:
            self._failed = True
            self._session.print_error(answer.error)
        if self._interactive:
            click.echo(err=True)

    def _new(self, rest: str) -> None:
        _refuse_argument("/new", rest)
        self._conversation.clear()
        self._print("Started a new conversation.")

    def _model(self, name: str) -> None:
        if not find_protocol(self._session.account.backend).reports_model:
            self._print("This endpoint does not support switching models.")
            return
        if not name:
            self._print(
                f"The model is {one_line(self._conversation.model)}. /model NAME switches to another."
            )
            return
        models = list(self._runner.run(self._model_ids()))
        if models and name not in models:
            similar = difflib.get_close_matches(name, models, 1, 0.4)
            advice = f'Did you mean "{one_line(similar[0])}"?' if similar else "Tab completes the names."
            self._print(
                f'The gateway lists no model "{one_line(name)}". {advice} '
                f"Still using {one_line(self._conversation.model)}."
            )
            return
        self._conversation.model = name
        self._print(f"Now using {one_line(self._conversation.model)}.")

    def _allow_over_budget(self, rest: str) -> None:
        _refuse_argument("/over-budget", rest)
        self._next_over_budget = True
        self._print("The next message is sent even if it exceeds a budget.")

    async def _model_ids(self) -> list[str]:
        """Return the models of the gateway; none if it cannot be reached or lists none."""
        try:
            listing = await self._session.list_models()
        except (BridgeError, click.ClickException):
            return []
        models = filter_models(listing.models, self._session.settings)
        return [model.id for model in models if model.is_chat_model]

    def _edit(self, text: str) -> None:
        edited = click.edit(text, extension=".md")
        if edited is None or not edited.strip():
            self._print("Nothing to send: the editor was closed without saving a text.")
            return
        self._print(f"> {edited.rstrip()}")
        self._answer(edited)

    def _attach(self, path: str) -> None:
        self._attachments = (*self._attachments, read_attachment(_path_of(path, "/file notes.txt")))
        count = format_count(len(self._attachments), "file")
        self._print(f"Attached to your next message: {count}.")

    def _save(self, path: str) -> None:
        file = _path_of(path, "/save chat.json")
        if file.exists() and file not in self._saved_files:
            raise click.ClickException(f"{file} exists. Choose another name.")
        if not file.parent.is_dir():
            raise click.ClickException(f"The folder {file.parent} does not exist. Choose another path.")
        write_conversation(file, self._conversation.save(), self._session.secrets)
        self._saved_files.add(file)
        self._print(f"Saved {format_count(len(self._conversation.messages), 'message')} to {file}.")

    def _load(self, path: str) -> None:
        saved = read_conversation(_path_of(path, "/load chat.json"))
        self._conversation.clear()
        self._conversation.restore(saved)
        count = format_count(len(self._conversation.messages), "message")
        self._print(f"Loaded {count}. Still using {one_line(self._conversation.model)}.")

    def _cost(self, rest: str) -> None:
        _refuse_argument("/cost", rest)
        usages = [usage for usage, _ in self._spending if usage is not None]
        tokens = sum((usage.input_tokens or 0) + (usage.output_tokens or 0) for usage in usages)
        costs = [cost for _, cost in self._spending if cost is not None]
        parts = [format_count(len(self._spending), "answer"), format_count(tokens, "token")]
        if costs:
            parts.append(f"${sum(costs):.4f}")
        if unknown := len(self._spending) - len(costs):  # not counted as free
            parts.append(f"cost of {format_count(unknown, 'answer')} unknown")
        self._print(" · ".join(parts))

    def _help(self, _rest: str) -> None:
        lines = [f"{each.usage:<13} {each.summary}" for each in self._commands.values() if each.usage]
        self._print("\n".join([*lines, _KEYS]))

    def _quit(self, _rest: str) -> None:
        self._exit = True

    def _print(self, text: str) -> None:
        click.echo(dim(text, sys.stderr), err=True)


def _path_of(text: str, example: str) -> Path:
    if not text:
        raise click.UsageError(f"Name a file, for example: {example}")
    return Path(os.path.expanduser(text))


def _refuse_argument(command: str, argument: str) -> None:
    if argument:
        raise click.UsageError(f"{command} takes no argument. Remove {to_json(one_line(argument))}.")
