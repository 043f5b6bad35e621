"""Read prompts: from a pipe, line by line, or at a terminal with editing, history and completion.

prompt_toolkit takes longer to load than most commands run, so it is loaded when a chat starts. A
terminal without cursor movement (TERM=dumb) is read line by line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tollbridge.transport.files import create_file, make_folder, make_private, replace_file
from tollbridge.types.text import replace_surrogates

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyBindings
else:
    # A stand-in at run time: `ChatCompleter` is defined before prompt_toolkit is loaded, which calls the
    # methods of a completer and does not check its class. No method of the real base class is used.
    Completer = object

# In bytes. About four million tokens at four bytes per token: more than any context window.
PROMPT_LIMIT = 16 * 1024 * 1024
PROMPT = "> "
# The history is shortened to half of this size (bytes) when it is larger.
HISTORY_LIMIT = 1024 * 1024
# Seconds after which a command says that it waits for standard input.
_SILENT_WAIT = 1.0


# --- Standard input ---


def has_piped_input() -> bool:
    """Return whether standard input is a pipe, a socket or a file: not a terminal, nor the null device."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_standard_input() -> str:
    """Read all of standard input as text. It is an error if it is too long or not UTF-8."""
    can_wait = sys.platform != "win32"  # it cannot wait for a pipe
    if can_wait and sys.stderr.isatty() and not select.select([sys.stdin.fileno()], [], [], _SILENT_WAIT)[0]:
        click.echo("Reading standard input… (end it with Ctrl-D, or pass < /dev/null)", err=True)
    data = sys.stdin.buffer.read(PROMPT_LIMIT + 1)
    if len(data) > PROMPT_LIMIT:
        raise click.ClickException(f"Standard input exceeds the {PROMPT_LIMIT >> 20} MiB limit.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"Standard input is not UTF-8 text (byte {error.start}).") from error


def read_piped_line() -> str:
    """Return the next line of standard input; empty at its end. A line that is too long is an error."""
    line = sys.stdin.readline(PROMPT_LIMIT + 1)
    if len(line.encode(errors="replace")) > PROMPT_LIMIT:
        raise click.ClickException(f"A line of standard input exceeds the {PROMPT_LIMIT >> 20} MiB limit.")
    return line


# --- The prompt of a chat ---

# What is completed after a command: the name of a model, the path of a file, or nothing.
Argument = Literal["model", "file"] | None
ListModels = Callable[[], Awaitable[Sequence[str]]]


class ChatPrompt:
    """The prompt of a chat on a terminal.

    Args:
        commands: The commands to complete, with what is completed after each.
        list_models: Returns the models to complete; it may fail.
        history: The file with the prompts of earlier chats; `None` to keep them for this chat only.
    """

    def __init__(
        self, commands: Mapping[str, Argument], list_models: ListModels, history: Path | None
    ) -> None:
        self._completer = ChatCompleter(commands, list_models)
        self._history = history
        self._session: PromptSession[str] | None = None

    def load(self) -> None:
        """Load the editor of prompts, which takes some time. `read` does it if needed."""
        if self._session is not None or os.environ.get("TERM") == "dumb":
            return
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.output import create_output
        from prompt_toolkit.output.vt100 import Vt100_Output

        path = self._history
        # Standard output can be redirected; the prompt must not be.
        output = create_output(sys.stdout if sys.stdout.isatty() else sys.stderr)
        if isinstance(output, Vt100_Output):
            output.enable_cpr = False  # the answer of a slow terminal would be read as typed text
        session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            key_bindings=_key_bindings(),
            completer=self._completer,
            complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
            history=FileHistory(path) if path and prepare_history(path) else InMemoryHistory(),
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            output=output,
        )
        self._session = session

    def read(self, runner: asyncio.Runner, typed: str = "") -> str:
        """Read one prompt, which can have several lines.

        Args:
            runner: Runs the prompt, so that tasks of the engine continue meanwhile.
            typed: What the user typed before; the prompt starts with it.

        Raises:
            EOFError: The user pressed Ctrl-D.
            KeyboardInterrupt: The user pressed Ctrl-C.
        """
        self.load()
        if self._session is None:
            return _read_plain_line()
        try:
            text = runner.run(self._session.prompt_async(default=typed, handle_sigint=False))
        finally:
            restore_echo()
        return replace_surrogates(text)


def _read_plain_line() -> str:
    if sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (its import gives `input` editing and history)
        return input(PROMPT)
    click.echo(PROMPT, err=True, nl=False)
    line = read_piped_line()
    if not line:
        raise EOFError
    return line


def _key_bindings() -> KeyBindings:
    """Enter sends the prompt, Alt-Enter starts a line, and Tab completes; a pasted text keeps its lines."""
    from prompt_toolkit.filters import completion_is_selected
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    bindings = KeyBindings()

    @bindings.add("enter", filter=~completion_is_selected)
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @bindings.add("enter", filter=completion_is_selected)
    def accept_completion(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @bindings.add("tab")
    def complete(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state:
            buffer.complete_next()
        else:
            buffer.start_completion(select_first=True)

    @bindings.add("escape", "enter")
    def start_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings


def prepare_history(path: Path) -> bool:
    """Create the history file, or shorten it if it is too long. Return whether it can be used."""
    try:
        if not path.exists():
            make_folder(path.parent)
            create_file(path).close()
        make_private(path)
        data = path.read_bytes()
        if len(data) > HISTORY_LIMIT:
            # An entry starts with a comment after an empty line.
            replace_file(path, b"\n# " + data[-HISTORY_LIMIT // 2 :].partition(b"\n# ")[2])
    except OSError:
        return False
    return True


class ChatCompleter(Completer):
    """Completes the commands of a chat, and the models and files after them."""

    def __init__(self, commands: Mapping[str, Argument], list_models: ListModels) -> None:
        self._commands = commands
        self._list_models = list_models
        self._models: Sequence[str] | None = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return the completions of commands and files."""
        from prompt_toolkit.completion import Completion, PathCompleter
        from prompt_toolkit.document import Document

        name, space, argument = document.text_before_cursor.partition(" ")
        if not space:
            matches = [command for command in self._commands if name and command.startswith(name)]
            return [Completion(command, -len(name)) for command in matches]
        kind = self._commands.get(name)
        if kind == "file":
            return PathCompleter(expanduser=True).get_completions(Document(argument), complete_event)
        models = (self._models or ()) if kind == "model" else ()
        return [Completion(model, -len(argument)) for model in models if argument.lower() in model.lower()]

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion]:
        """Yield all completions. The models are listed when the first one is completed."""
        name, space, _ = document.text_before_cursor.partition(" ")
        if self._models is None and space and self._commands.get(name) == "model":
            self._models = await self._list_models()
        for completion in self.get_completions(document, complete_event):
            yield completion


# --- What is typed before a prompt ---

# Escape sequences of keys such as the arrows, and the markers of a pasted text.
_KEY_SEQUENCES = re.compile(r"\x1b(?:\[[0-9;?<>=]{0,32}[ -/]{0,4}[@-~]|O[@-~])?")
_DELETE_KEYS = "\x08\x7f"
# Request that the terminal marks the start and the end of a pasted text, and withdraw the request.
_MARK_PASTES, _DO_NOT_MARK_PASTES = "\x1b[?2004h", "\x1b[?2004l"


# Whether `hold_keyboard` has turned the echo off. The prompt does not change that while it is shown.
_echo_is_off = False


class TypedText:
    """The text that was typed while the keyboard was held."""

    text = ""


def restore_echo() -> None:
    """Let the terminal echo again what is typed, if `hold_keyboard` has turned that off."""
    global _echo_is_off
    if _echo_is_off:
        import termios

        _echo_is_off = False
        attributes = termios.tcgetattr(sys.stdin.fileno())
        attributes[3] |= termios.ECHO
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, attributes)


@contextlib.contextmanager
def hold_keyboard() -> Iterator[TypedText]:
    """Do not echo what is typed before the next prompt, and return it at the end. Ctrl-C is still a signal.

    Used while a chat starts and during an answer. The terminal marks pasted texts from the start of the block
    on, so that a text that is pasted shortly before the prompt appears is one prompt. After the block, there
    is still no echo: the text would appear before the prompt, and again in it. The prompt ends both.
    Without a terminal that can be held (a pipe, TERM=dumb, Windows), nothing happens.
    """
    global _echo_is_off
    typed = TypedText()
    if sys.platform == "win32" or not sys.stdin.isatty() or os.environ.get("TERM") == "dumb":
        yield typed
        return
    import termios

    fd = sys.stdin.fileno()
    before, held = termios.tcgetattr(fd), termios.tcgetattr(fd)
    held[3] &= ~(termios.ECHO | termios.ICANON)
    held[3] |= termios.NOFLSH  # Ctrl-C does not discard what was typed before it
    held[6][termios.VMIN], held[6][termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSANOW, held)
    _write_to_terminal(_MARK_PASTES)
    try:
        yield typed
        if before[3] & termios.ECHO:
            before[3] &= ~termios.ECHO
            _echo_is_off = True
    except BaseException:
        _write_to_terminal(_DO_NOT_MARK_PASTES)
        raise
    finally:
        data = bytearray()
        while select.select([fd], [], [], 0)[0] and (piece := os.read(fd, 65536)):
            data += piece
        typed.text = clean_typed_text(data.decode("utf-8", "replace"))
        termios.tcsetattr(fd, termios.TCSANOW, before)


def _write_to_terminal(sequence: str) -> None:
    output = next((stream for stream in (sys.stdout, sys.stderr) if stream.isatty()), None)
    if output is not None:
        output.write(sequence)
        output.flush()


def clean_typed_text(text: str) -> str:
    """Return typed text without the sequences of special keys, and with its deletions applied."""
    characters: list[str] = []
    for character in _KEY_SEQUENCES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")):
        if character in _DELETE_KEYS:
            if characters:
                characters.pop()
        elif character.isprintable() or character in "\t\n":
            characters.append(character)
    return "".join(characters)
