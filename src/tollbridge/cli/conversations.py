"""Conversations: their messages and requests, the files they are saved in, and `tollbridge log`.

A conversation is kept only if the user asked for it (the option --keep or the setting `keep_conversations`).
Files can be read by their owner only, and contain no key that was sent. `tollbridge log` lists, shows and
deletes kept conversations.
"""

from __future__ import annotations

import secrets
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import click
import msgspec

from tollbridge.cli.options import KeepOptions, PromptOptions, WholeNumber
from tollbridge.cli.output import Column, Row, show_table, to_json
from tollbridge.cli.terminal import Styles, format_count, one_line, replace_controls, supports_styles
from tollbridge.config.schema import Settings
from tollbridge.transport.files import data_folder, make_folder, replace_file
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.text import read_json, write_json

# A larger file (bytes) is not read.
SIZE_LIMIT = 256 * 1024 * 1024
SUFFIX = ".json"
NOTHING_KEPT = (
    "No conversation is kept. Keep one with --keep, or every one with "
    "`tollbridge config set keep_conversations true`."
)
_FORMAT = 1
_TITLE_LENGTH = 80


class Conversation:
    """The messages of a chat. A question and its answer are added together, so the history stays valid.

    Args:
        model: The model that answers.
        system: The system prompt.
        parameters: Fields of every `ChatRequest`, such as `temperature`.
        file: The file that the conversation is kept in; `None` if it is not kept.
    """

    def __init__(
        self,
        model: str,
        system: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        file: Path | None = None,
    ) -> None:
        self.model = model
        self.messages: list[Message] = []
        self._system = system
        self._restored_system: str | None = None
        self._id = uuid.uuid4().hex
        self._file = file
        self._parameters = dict(parameters or {})

    def request(self, question: Message) -> ChatRequest:
        """Return the request for the next question."""
        messages = (*self._system_messages(), *self.messages, question)
        return ChatRequest(model=self.model, messages=messages, conversation=self._id, **self._parameters)

    def add(self, question: Message, answer: Sequence[Part]) -> bool:
        """Add a question and its answer, unless the answer has nothing but reasoning.

        Returns:
            Whether they were added.
        """
        answered = any(not isinstance(part, ThinkingPart) for part in answer)
        if answered:
            self.messages += [question, Message(Role.ASSISTANT, tuple(answer))]
        return answered

    def clear(self) -> None:
        """Start a new conversation. If this one is kept, the new one is too, in another file."""
        self.messages.clear()
        self._restored_system = None
        self._id = uuid.uuid4().hex
        if self._file is not None:
            self._file = ConversationStore().new_path()

    def keep(self, keys: Iterable[str]) -> None:
        """Write the conversation to its file, without these keys, if it is kept."""
        if self._file is not None:
            write_conversation(self._file, self.save(), keys)

    def restore(self, saved: SavedConversation) -> None:
        """Continue a saved conversation. A system prompt that was set for this one replaces the saved one.

        Its id continues too: budgets and the explanations of cache misses count it as one conversation.
        """
        self.messages = [message for message in saved.messages if message.role is not Role.SYSTEM]
        system = [message for message in saved.messages if message.role is Role.SYSTEM]
        self._restored_system = "\n".join(text for message in system for text in texts(message)) or None
        self._id = saved.conversation or self._id

    def save(self) -> SavedConversation:
        """Return the conversation as it is written to a file."""
        messages = (*self._system_messages(), *self.messages)
        return SavedConversation(model=self.model, messages=messages, conversation=self._id)

    def _system_messages(self) -> tuple[Message, ...]:
        system = self._restored_system if self._system is None else self._system
        return () if system is None else (Message(Role.SYSTEM, (TextPart(system),)),)


def texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message; files and tool calls as a line in brackets."""
    for part in message.parts:
        match part:
            case TextPart(text):
                yield text
            case DataPart(data, mime, name):
                yield f"[{', '.join(filter(None, (name, mime)))}, {len(data):,} bytes]"
            case ToolCallPart(_, name, arguments):
                yield f"[{name} {write_json(arguments)}]"
            case ToolResultPart(call_id):
                yield f"[result of {call_id}]"
            case ThinkingPart():
                pass
            case _:
                assert_never(part)


async def open_conversation(
    keep: KeepOptions,
    settings: Settings,
    wishes: PromptOptions,
    pick_model: Callable[[str | None], Awaitable[str]],
) -> Conversation:
    """Start a conversation, or continue the last one that was kept.

    Args:
        keep: Whether to keep or to continue a conversation.
        settings: Say whether conversations are kept if the options do not.
        wishes: The model, the system prompt and the parameters.
        pick_model: Returns the model to use, given the one that is named.

    Raises:
        click.ClickException: There is no conversation to continue.
    """
    store = ConversationStore()
    last = store.find() if keep.resume else None
    saved = None if last is None else read_conversation(last.path)
    model = await pick_model(wishes.model or (saved.model if saved else None))
    file = last.path if last is not None else None
    if file is None and (settings.keep_conversations if keep.keep is None else keep.keep):
        file = store.new_path()
    if keep.keep is False:
        file = None
    conversation = Conversation(model, wishes.system, wishes.parameters, file)
    if saved is not None:
        conversation.restore(saved)
    return conversation


# --- Files ---


class SavedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a file. `tollbridge count --messages` reads the same files.

    `conversation` is the id of its requests; `None` in files of earlier versions, which did not save it.
    """

    model: str
    messages: tuple[Message, ...]
    conversation: str | None = None
    format: int = _FORMAT

    @property
    def title(self) -> str:
        """The beginning of the first question, on one line."""
        questions = (message for message in self.messages if message.role is Role.USER)
        question = next(questions, None)
        text = "" if question is None else one_line(" ".join(texts(question)))
        return text if len(text) <= _TITLE_LENGTH else f"{text[:_TITLE_LENGTH]}…"

    def to_markdown(self) -> str:
        """Return the conversation as a readable text."""
        blocks = [f"# {self.title}", f"Model: {self.model}"]
        for message in self.messages:
            blocks += [f"## {message.role.capitalize()}", *texts(message)]
        return "\n\n".join(blocks) + "\n"


def read_conversation(path: Path) -> SavedConversation:
    """Read a saved conversation.

    Raises:
        click.ClickException: The file cannot be read, or contains something else.
    """
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise click.ClickException(f"Cannot read {path}: {error.strerror or error}.") from error
    try:
        if len(data) > SIZE_LIMIT:
            raise ValueError(f"it exceeds the {SIZE_LIMIT >> 20} MiB limit")
        return msgspec.convert(read_json(data), SavedConversation)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors too
        advice = f" Delete it with `tollbridge log delete {path.stem}`." if _is_kept(path) else ""
        reason = one_line(str(error)).rstrip(".")
        raise click.ClickException(f"{path} is not a saved conversation: {reason}.{advice}") from error


def _is_kept(path: Path) -> bool:
    return path.parent == ConversationStore().folder


def write_conversation(path: Path, conversation: SavedConversation, keys: Iterable[str] = ()) -> None:
    """Write a conversation to a private file: as Markdown if the name ends in .md, else as JSON.

    Args:
        path: The file.
        conversation: The conversation.
        keys: Keys to remove from it.

    Raises:
        click.ClickException: The file cannot be written.
    """
    # Imported here because few commands write a conversation.
    from tollbridge.recorder.recording import hide_keys

    text = conversation.to_markdown() if path.suffix == ".md" else write_json(conversation) + "\n"
    data = hide_keys(text.encode("utf-8", "replace"), [key for key in keys if key])
    try:
        make_folder(path.parent)
        replace_file(path, data)
    except OSError as error:
        raise click.ClickException(f"Cannot write {path}: {error.strerror or error}.") from error


# --- Kept conversations ---


class KeptConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the folder of kept conversations. `updated` is in seconds since the epoch."""

    id: str
    path: Path
    updated: float


class ConversationStore:
    """The folder of kept conversations, one file each."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or data_folder() / "conversations"

    def new_path(self) -> Path:
        """Return the file for a new conversation. Its name is the conversation's id."""
        while (path := self.folder / f"{secrets.token_hex(3)}{SUFFIX}").exists():
            pass
        return path

    def all(self) -> list[KeptConversation]:
        """Return the kept conversations, the latest first."""
        kept = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                kept.append(KeptConversation(id=path.stem, path=path, updated=path.stat().st_mtime))
            except OSError:  # deleted by another process
                continue
        return sorted(kept, key=lambda each: each.updated, reverse=True)

    def find(self, prefix: str | None = None) -> KeptConversation:
        """Return the conversation whose id starts with a prefix, or the latest one.

        Raises:
            click.ClickException: No conversation is kept, or not exactly one matches.
        """
        kept = self.all()
        if not kept:
            raise click.ClickException(NOTHING_KEPT)
        if prefix is None:
            return kept[0]
        matches = [each for each in kept if each.id.startswith(prefix)]
        if len(matches) != 1:
            count = "No" if not matches else f"{len(matches)}"
            raise click.ClickException(
                f"{count} conversations have an ID that starts with {prefix!r}. Run `tollbridge log`."
            )
        return matches[0]


# --- The command `log` ---

LOG_COLUMNS = (
    Column("id"),
    Column("last change", drop_order=1),
    Column("model", drop_order=2),
    Column("messages", right=True, drop_order=3),
    Column("first question", min_width=20),
)


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kept conversation. The fields are those of `log --json`; `updated` is in seconds since the epoch."""

    id: str
    updated: float
    model: str | None
    messages: int
    title: str


@click.group(invoke_without_command=True)
@click.option("--count", "-n", type=WholeNumber(1), default=20, show_default=True, help="How many to list.")
@click.option("--json", "as_json", is_flag=True, help="Output JSON Lines, one object per conversation.")
@click.pass_context
def log(ctx: click.Context, count: int, as_json: bool) -> None:
    """List, show and delete kept conversations.

    Conversations are kept if `ask` or `chat` has the option --keep, or if the setting `keep_conversations` is
    true. They are files on this computer that only you can read. Without a subcommand, the latest are listed.
    """
    if ctx.invoked_subcommand is not None:
        return
    store = ConversationStore()
    kept = store.all()
    rows = [_row(each) for each in kept[:count]]
    if as_json:
        for row in rows:
            click.echo(to_json(row))
    elif rows:
        show_table(LOG_COLUMNS, [Row(_cells(row)) for row in rows])
        if len(kept) > count:
            click.echo(f"\n… and {len(kept) - count:,} more; use --count to see them.")
    else:
        click.echo(NOTHING_KEPT, err=True)


def _row(kept: KeptConversation) -> LogRow:
    try:
        saved = read_conversation(kept.path)
    except click.ClickException:
        return LogRow(id=kept.id, updated=kept.updated, model=None, messages=0, title="(cannot be read)")
    return LogRow(
        id=kept.id,
        updated=kept.updated,
        model=saved.model,
        messages=sum(message.role is not Role.SYSTEM for message in saved.messages),
        title=saved.title,
    )


def _cells(row: LogRow) -> tuple[str, ...]:
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.updated))
    return row.id, changed, row.model or "—", f"{row.messages:,}", row.title


@log.command()
@click.argument("conversation", required=False, metavar="[ID]")
@click.option("--json", "as_json", is_flag=True, help="Output the conversation as one JSON object.")
def show(conversation: str | None, as_json: bool) -> None:
    """Print a conversation: the one whose ID starts with ID, or the latest."""
    kept = ConversationStore().find(conversation)
    saved = read_conversation(kept.path)
    if as_json:
        click.echo(to_json({"id": kept.id, **_as_json(saved)}))
    elif supports_styles(sys.stdout):
        _show_styled(kept.id, saved)
    else:
        click.echo(replace_controls(saved.to_markdown()) if sys.stdout.isatty() else saved.to_markdown())


def _as_json(saved: SavedConversation) -> dict[str, Any]:
    messages = [{"role": message.role, "text": "\n".join(texts(message))} for message in saved.messages]
    return {"model": saved.model, "messages": messages}


def _show_styled(conversation_id: str, saved: SavedConversation) -> None:
    # Imported here because it loads rich.
    from tollbridge.cli.markdown import render_markdown

    paint = Styles(sys.stdout)
    click.echo(f"{paint.dim}{conversation_id} · {replace_controls(saved.model)}{paint.plain}")
    for message in saved.messages:
        text = "\n\n".join(texts(message))
        if message.role is Role.ASSISTANT:
            render_markdown(text, sys.stdout)
        else:
            mark = "> " if message.role is Role.USER else "system: "
            click.echo(f"\n{paint.bold}{mark}{replace_controls(text)}{paint.plain}")


@log.command()
@click.argument("conversations", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Delete all kept conversations.")
def delete(conversations: tuple[str, ...], everything: bool) -> None:
    """Delete conversations. ID is the beginning of an ID in the list."""
    if bool(conversations) == everything:
        raise click.UsageError("Name the conversations to delete, or use --all.")
    store = ConversationStore()
    # All are found before the first one is deleted, so that a wrong ID deletes nothing.
    chosen = store.all() if everything else [store.find(prefix) for prefix in conversations]
    for kept in {each.id: each for each in chosen}.values():
        try:
            kept.path.unlink(missing_ok=True)
        except OSError as error:
            raise click.ClickException(f"Cannot delete {kept.path}: {error.strerror}.") from error
    click.echo(f"Deleted {format_count(len({each.id for each in chosen}), 'conversation')}.", err=True)
