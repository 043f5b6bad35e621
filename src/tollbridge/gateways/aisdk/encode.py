"""Editor messages to ModelMessages, as the schema of `ai` 5, 6 or 7 takes them.

Two passes: the first learns which call has which name and which result belongs to it, the second writes. The
SDK wants every result in a `tool` message right after the call; an editor puts results where the user speaks.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from tollbridge.core.answers import Place, match_results
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
from tollbridge.core.reasoning import is_marker, unbind
from tollbridge.gateways.aisdk.outputs import Target, encode_output, texts_of

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
        given: list[Message],
        target: Target,
        images: ImageInNonUser,
        on_note: Callable[[str], None] | None,
    ) -> None:
        self._prompt = [message for message in given if message.role is Role.SYSTEM]
        self._messages = messages = [message for message in given if message.role is not Role.SYSTEM]
        self._target = target
        self._images = images
        self._on_note = on_note
        self._found = ModelMessages()
        self._called, self._answers = _answered(messages)

    def convert(self) -> ModelMessages:
        system = "\n\n".join(text for text in map(self._system, self._prompt) if text)
        if system and self._target >= 7:
            self._found.instructions = system  # `ai` 7 refuses it among the messages
        elif system:
            self._found.append({"role": "system", "content": system})
        for message in self._messages:
            for role, parts in _by_role(message):
                self._write(role, parts)
        return self._found

    def _write(self, role: str, parts: list[Part]) -> None:
        if role == "tool":
            results = [part for part in parts if isinstance(part, ToolResultPart)]
            self._append("tool", [self._orphan(part) for part in results if part.call_id not in self._called])
            return
        self._append(role, [content for part in parts if (content := self._content(role, part)) is not None])
        answers = [
            answer for part in parts if isinstance(part, ToolCallPart) for answer in self._answers_of(part)
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
                return None if is_marker(part) else self._file(role, part)
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
        what = "An image" if mime.startswith("image/") else "A file"
        if self._images == "error":
            raise RequestError(
                f"{what} ({mime}) stands in a message of the role {role}; only a user's may hold it."
            )
        self._note(f"{what} ({mime}, {len(part.data)} bytes) in a message of the role {role} was left out.")
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

    def _answers_of(self, call: ToolCallPart) -> list[Json]:
        results = self._answers.popleft()  # calls are written in the order in which they were read
        if not results:
            self._note(f"The call {call.call_id} of the tool {call.name} had no result; one was supplied.")
            results = [ToolResultPart(call.call_id, (TextPart(NO_RESULT),), is_error=True)]
        if len(results) > 1:
            self._note(f"The call {call.call_id} of the tool {call.name} has more than one result.")
        return [self._result(result, call.name) for result in results]

    def _orphan(self, part: ToolResultPart) -> Json:
        self._note(f"The result {part.call_id} belongs to no call.")
        return self._result(part, UNKNOWN_TOOL)

    def _result(self, part: ToolResultPart, name: str) -> Json:
        output = encode_output(part, self._target)
        return {"type": "tool-result", "toolCallId": part.call_id, "toolName": name, "output": output}

    def _system(self, message: Message) -> str:
        found: list[str] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                found.append(part.text)
            elif isinstance(part, DataPart):
                found += texts_of(part) or [self._stand_in("system", part, true_mime(part.data, part.mime))]
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


def _answered(messages: list[Message]) -> tuple[set[str], deque[list[ToolResultPart]]]:
    """The ids that are called, and the results of each call, in the order of the calls.

    A result too many belongs to the call of its id that it follows, or to the first.
    """
    calls: dict[Place, list[ToolResultPart]] = {}
    by_id: dict[str, list[Place]] = {}
    results: dict[Place, ToolResultPart] = {}
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                calls[at, number] = []
                by_id.setdefault(part.call_id, []).append((at, number))
            elif isinstance(part, ToolResultPart):
                results[at, number] = part
    for call, answer in match_results(messages).items():
        calls[call].append(results.pop(answer))
    for place, result in results.items():
        same = by_id.get(result.call_id)
        if same:
            calls[max((call for call in same if call < place), default=same[0])].append(result)
    return set(by_id), deque(calls.values())


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
