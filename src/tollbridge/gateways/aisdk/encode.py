"""Editor messages to ModelMessages, as the schema of `ai` 5, 6 or 7 takes them.

Two passes: the first learns which call has which name and which result belongs to it, the second writes. The
SDK wants every result in a `tool` message right after the call; an editor puts results where the user speaks.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from tollbridge.core.errors import RequestError
from tollbridge.core.media import true_mime
from tollbridge.core.messages import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.core.reasoning import unbind
from tollbridge.gateways.aisdk.outputs import Target, encode_output

Json = dict[str, Any]
ImageInNonUser = Literal["placeholder", "skip", "error"]

# What a history may lack, and what stands for it: a name for a result's tool, a result for a call.
UNKNOWN_TOOL = "unknown_tool"
NO_RESULT = "The tool gave no result."


class ModelMessages(list[Json]):
    """The messages. `instructions` is the system prompt where the target wants it beside them; `notes` say
    what could not be taken over as it was."""

    def __init__(self, messages: Iterable[Json] = ()) -> None:
        super().__init__(messages)
        self.instructions: str | None = None
        self.notes: list[str] = []


def convert_messages(
    messages: Iterable[Message],
    *,
    target: Target = 6,
    image_in_non_user: ImageInNonUser = "placeholder",
    on_note: Callable[[str], None] | None = None,
) -> ModelMessages:
    """ModelMessages for `ai` of the major version `target`.

    A call without a result gets one that says so: `ai` 6 and 7 refuse the conversation otherwise, and so do
    the providers behind 5. A result without a call keeps its place under the name `unknown_tool`. Both are
    noted.
    """
    if target not in (5, 6, 7):
        raise RequestError(f"There are no ModelMessages of version {target!r}. Known are: 5, 6, 7.")
    if image_in_non_user not in ("placeholder", "skip", "error"):
        raise RequestError(
            f"image_in_non_user is {image_in_non_user!r}: placeholder, skip or error is known."
        )
    return _Conversion(list(messages), target, image_in_non_user, on_note).convert()


class _Conversion:
    def __init__(
        self,
        messages: list[Message],
        target: Target,
        images: ImageInNonUser,
        on_note: Callable[[str], None] | None,
    ) -> None:
        self._messages = messages
        self._target = target
        self._images = images
        self._on_note = on_note
        self._found = ModelMessages()
        parts = [part for message in messages for part in message.parts]
        self._names = {part.call_id: part.name for part in parts if isinstance(part, ToolCallPart)}
        # An id may come again in a later turn: each call takes the first result that is left.
        self._calls_left = Counter(part.call_id for part in parts if isinstance(part, ToolCallPart))
        self._results: dict[str, deque[ToolResultPart]] = {}
        for part in parts:
            if isinstance(part, ToolResultPart):
                self._results.setdefault(part.call_id, deque()).append(part)

    def convert(self) -> ModelMessages:
        system = "\n\n".join(text for text in map(self._system, self._messages) if text)
        if system and self._target >= 7:
            self._found.instructions = system  # `ai` 7 refuses it among the messages
        elif system:
            self._found.append({"role": "system", "content": system})
        for message in self._messages:
            if message.role is not Role.SYSTEM:
                for role, parts in _by_role(message):
                    self._write(role, parts)
        return self._found

    def _write(self, role: str, parts: list[Part]) -> None:
        if role == "tool":
            orphans = [
                part for part in parts if isinstance(part, ToolResultPart) and part.call_id not in self._names
            ]
            self._append("tool", [self._result(part) for part in orphans])
            return
        self._append(role, [content for part in parts if (content := self._content(role, part)) is not None])
        answers = [
            answer for part in parts if isinstance(part, ToolCallPart) for answer in self._answers(part)
        ]
        self._append("tool", answers)

    def _append(self, role: str, content: list[Json]) -> None:
        if content:
            self._found.append({"role": role, "content": content})

    def _content(self, role: str, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                return {"type": "text", "text": text} if text else None
            case DataPart():
                return self._file(role, part)
            case ThinkingPart():
                return self._reasoning(part)
            case ToolCallPart(call_id, name, given):
                given = {} if given is None or given == "" else given
                call = {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": given}
                proof = _options(part.metadata)
                return {**call, "providerOptions": proof} if proof else call
            case ToolResultPart():
                return None  # in the tool message

    def _file(self, role: str, part: DataPart) -> Json | None:
        mime = true_mime(part.data, part.mime)
        if role != "user" and mime.startswith("image/"):
            text = self._stand_in(role, part, mime)
            return {"type": "text", "text": text} if text else None
        named = {"filename": part.name} if part.name else {}
        return {"type": "file", "data": b64encode(part.data).decode(), "mediaType": mime, **named}

    def _stand_in(self, role: str, part: DataPart, mime: str) -> str:
        if self._images == "error":
            raise RequestError(f"A message of the role {role} holds an image ({mime}); only a user's may.")
        self._note(f"An image ({mime}, {len(part.data)} bytes) in a message of the role {role} was left out.")
        return f"[{mime}: {len(part.data)} bytes]" if self._images == "placeholder" else ""

    def _reasoning(self, part: ThinkingPart) -> Json | None:
        """What proves it travels by provider; what another protocol kept with it means nothing here."""
        _, given = unbind(part.metadata)
        options = _options(given)
        if len(options) < len(given):
            foreign = ", ".join(sorted(set(given) - set(options)))
            self._note(f"Reasoning of another protocol was stripped of what it carried: {foreign}.")
        if not part.text and not options:
            return None
        proof = {"providerOptions": options} if options else {}
        return {"type": "reasoning", "text": part.text, **proof}

    def _answers(self, call: ToolCallPart) -> list[Json]:
        self._calls_left[call.call_id] -= 1
        left = self._results.get(call.call_id, deque())
        if not left:
            self._note(f"The call {call.call_id} of the tool {call.name} had no result; one was supplied.")
            left = deque([ToolResultPart(call.call_id, (TextPart(NO_RESULT),), is_error=True)])
        answers = [self._result(left.popleft())]
        if self._calls_left[call.call_id] == 0 and left:
            self._note(f"The call {call.call_id} of the tool {call.name} has more than one result.")
            answers += [self._result(left.popleft()) for _ in range(len(left))]
        return answers

    def _result(self, part: ToolResultPart) -> Json:
        name = self._names.get(part.call_id)
        if name is None:
            self._note(f"The result {part.call_id} belongs to no call.")
        return {
            "type": "tool-result",
            "toolCallId": part.call_id,
            "toolName": name or UNKNOWN_TOOL,
            "output": encode_output(part, self._target),
        }

    def _system(self, message: Message) -> str:
        if message.role is not Role.SYSTEM:
            return ""
        found = []
        for part in message.parts:
            if isinstance(part, TextPart):
                found.append(part.text)
            elif isinstance(part, DataPart):
                found.append(self._stand_in("system", part, true_mime(part.data, part.mime)))
            else:
                self._note(f"A system message cannot hold a {type(part).__name__}; it was left out.")
        return "\n".join(text for text in found if text)

    def _note(self, note: str) -> None:
        self._found.notes.append(note)
        if self._on_note is not None:
            self._on_note(note)


def _options(metadata: Mapping[str, Any] | None) -> Json:
    """What each provider said goes back to it."""
    return {name: dict(said) for name, said in (metadata or {}).items() if isinstance(said, Mapping)}


def _by_role(message: Message) -> list[tuple[str, list[Part]]]:
    """The parts of a message under the roles that may hold them, results first: they answer what was."""
    speaker = "assistant" if message.role is Role.ASSISTANT else "user"
    results: list[Part] = [part for part in message.parts if isinstance(part, ToolResultPart)]
    found: list[tuple[str, list[Part]]] = [("tool", results)] if results else []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            continue
        role = "assistant" if isinstance(part, ToolCallPart | ThinkingPart) else speaker
        if found and found[-1][0] == role:
            found[-1][1].append(part)
        else:
            found.append((role, [part]))
    return found
