"""Conversations: their messages and requests, and the files they are saved in.

A conversation is kept only if the user asked for it (the option --keep or the setting `keep_conversations`).
Files can be read by their owner only, and contain no key that was sent.
"""

from __future__ import annotations

import contextlib
import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import click
import msgspec

from tollbridge.cli.options import KeepOptions, PromptOptions, read_file
from tollbridge.cli.terminal import one_line
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
NOTHING_KEPT = (
    "No conversation is kept. Keep one with --keep, or every one with "
    "`tollbridge config set keep_conversations true`."
)


class Conversation:
    """The messages of a chat. A question and its answer are added together, so the history stays valid.

    Args:
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
        """Add a question and its answer. Return false if the answer has nothing but reasoning."""
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
            self._file = new_path()

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

    `pick_model` returns the model to use, given the one that is named.
    """
    file = find_kept() if keep.resume else None
    saved = None if file is None else read_conversation(file)
    model = await pick_model(wishes.model or (saved.model if saved else None))
    if file is None and (settings.keep_conversations if keep.keep is None else keep.keep):
        file = new_path()
    if keep.keep is False:
        file = None
    conversation = Conversation(model, wishes.system, wishes.parameters, file)
    if saved is not None:
        conversation.restore(saved)
    return conversation


class SavedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a file. `tollbridge count --messages` reads the same files.

    `conversation` is the id of its requests.
    """

    model: str
    messages: tuple[Message, ...]
    conversation: str | None = None
    format: int = 1

    @property
    def title(self) -> str:
        """The beginning of the first question, on one line."""
        questions = (message for message in self.messages if message.role is Role.USER)
        question = next(questions, None)
        text = "" if question is None else one_line(" ".join(texts(question)))
        return text if len(text) <= 80 else f"{text[:80]}…"

    def to_markdown(self) -> str:
        """Return the conversation as a readable text."""
        blocks = [f"# {self.title}", f"Model: {self.model}"]
        for message in self.messages:
            blocks += [f"## {message.role.capitalize()}", *texts(message)]
        return "\n\n".join(blocks) + "\n"


def read_conversation(path: Path) -> SavedConversation:
    """Read a saved conversation.

    Raises:
        click.ClickException: The file cannot be read, is too large, or contains something else.
    """
    data = read_file(path, SIZE_LIMIT)
    try:
        return msgspec.convert(read_json(data), SavedConversation)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors too
        is_kept = path.parent == kept_folder()
        advice = f" Delete it with `tollbridge log delete {path.stem}`." if is_kept else ""
        reason = one_line(str(error)).rstrip(".")
        raise click.ClickException(f"{path} is not a saved conversation: {reason}.{advice}") from error


def write_conversation(path: Path, conversation: SavedConversation, keys: Iterable[str] = ()) -> None:
    """Write a conversation to a private file: as Markdown if the name ends in .md, else as JSON.

    `keys` are removed from it.
    """
    # Imported here because few commands write a conversation.
    from tollbridge.recorder.keys import hide_keys

    text = conversation.to_markdown() if path.suffix == ".md" else write_json(conversation) + "\n"
    data = hide_keys(text.encode("utf-8", "replace"), [key for key in keys if key])
    try:
        make_folder(path.parent)
        replace_file(path, data)
    except OSError as error:
        raise click.ClickException(f"Cannot write {path}: {error.strerror or error}.") from error


def kept_folder() -> Path:
    """Return the folder of kept conversations, one file each. The name of a file is the conversation's id."""
    return data_folder() / "conversations"


def new_path() -> Path:
    """Return the file for a new conversation."""
    while (path := kept_folder() / f"{secrets.token_hex(3)}.json").exists():
        pass
    return path


def list_kept() -> dict[Path, float]:
    """Return the files of the kept conversations, the latest first, with the times of their last change."""
    times: dict[Path, float] = {}
    for path in kept_folder().glob("*.json"):
        with contextlib.suppress(OSError):  # deleted by another process
            times[path] = path.stat().st_mtime
    return dict(sorted(times.items(), key=lambda item: item[1], reverse=True))


def find_kept(prefix: str | None = None) -> Path:
    """Return the file of the only conversation whose id starts with a prefix, or of the latest one."""
    paths = list(list_kept())
    if not paths:
        raise click.ClickException(NOTHING_KEPT)
    if prefix is None:
        return paths[0]
    matches = [path for path in paths if path.stem.startswith(prefix)]
    if len(matches) != 1:
        count = len(matches) or "No"
        raise click.ClickException(
            f"{count} conversations have an ID that starts with {prefix!r}. Run `tollbridge log`."
        )
    return matches[0]
