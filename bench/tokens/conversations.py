"""Simulated conversations of a coding agent: interleaved, edited, compacted, with changing tools."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)

Change = Literal["new", "append", "edit", "compact", "tools"]

CODE = ("python", "javascript", "c", "json", "html", "log", "diff", "listing", "example", "table")
PROSE = ("markdown",)
_TYPES = ("string", "integer")


class Step(msgspec.Struct, frozen=True):
    """One request: its conversation and turn, what changed since the previous request, and its answer."""

    conversation: int
    turn: int
    change: Change
    request: ChatRequest
    answer: tuple[Part, ...]
    reasoning: int


class _Conversation:
    """A conversation that grows with every step, by `scale` times as much text as usual."""

    def __init__(
        self, number: int, model: str, corpus: dict[str, list[str]], rng: random.Random, scale: int
    ) -> None:
        self.number, self.model, self.corpus, self.rng, self.scale = number, model, corpus, rng, scale
        self.code = tuple(kind for kind in CODE if kind in corpus)
        foreign = [kind for kind in corpus if kind not in (*CODE, *PROSE)] or PROSE
        self.prose = rng.choice(foreign) if rng.random() < 0.2 else "markdown"
        self.turn, self.calls, self.change = 0, 0, "new"
        self.tools = self._toolset()
        self.messages = [_message(Role.SYSTEM, self._text(PROSE, 4 * self.scale)), self._user()]

    def _text(self, kinds: tuple[str, ...], chunks: int = 1) -> str:
        texts = [self.rng.choice(self.corpus[self.rng.choice(kinds)]) for _ in range(chunks)]
        return "\n\n".join(texts)

    def _user(self) -> Message:
        text = self._text((self.prose,))[: self.rng.randint(60, 900)]
        if self.rng.random() < 0.5:
            text += f"\n```\n{self._text(self.code)}\n```"
        return _message(Role.USER, text)

    def _toolset(self) -> tuple[Tool, ...]:
        words = re.findall(r"[a-z]{3,}", self._text(PROSE, 3).lower()) or ["path"]

        def name() -> str:
            return "_".join(self.rng.choices(words, k=2))

        def description() -> str:
            return " ".join(self.rng.choices(words, k=self.rng.randint(6, 40)))

        return tuple(
            Tool(
                f"{name()}_{number}",
                description().capitalize() + ".",
                {
                    "type": "object",
                    "properties": {
                        name(): {"type": self.rng.choice(_TYPES), "description": description()}
                        for _ in range(self.rng.randint(1, 6))
                    },
                    "required": [name()],
                },
            )
            for number in range(40 if self.scale > 1 else self.rng.randint(8, 30))
        )

    def step(self) -> Step:
        self.turn += 1
        request = ChatRequest(model=self.model, messages=tuple(self.messages), tools=self.tools)
        roll = self.rng.random()
        reasoning = round(self.rng.lognormvariate(5.5, 0.9)) if self.rng.random() < 0.6 else 0
        answer = self._call(reasoning) if roll < 0.62 else self._reply(reasoning)
        step = Step(self.number, self.turn, self.change, request, answer, reasoning)  # type: ignore[arg-type]
        self._continue(roll, answer)
        return step

    def _reasoning(self, reasoning: int) -> tuple[Part, ...]:
        # The text is a summary; the reasoning itself is encrypted in the metadata.
        return (ThinkingPart("Looking at this.", metadata={"signature": "x" * 80}),) if reasoning else ()

    def _reply(self, reasoning: int) -> tuple[Part, ...]:
        text = f"{self._text((self.prose,))}\n\n```\n{self._text(self.code)}\n```"
        return *self._reasoning(reasoning), TextPart(text)

    def _call(self, reasoning: int) -> tuple[Part, ...]:
        self.calls += 1
        arguments = {"path": f"/src/module_{self.calls}.py", "content": self._text(self.code)[:800]}
        call = ToolCallPart(f"call_{self.number}_{self.calls}", self.rng.choice(self.tools).name, arguments)
        return *self._reasoning(reasoning), call

    def _continue(self, roll: float, answer: tuple[Part, ...]) -> None:
        self.change = "append"
        self.messages.append(Message(Role.ASSISTANT, answer))
        if roll < 0.62:
            call = next(part for part in answer if isinstance(part, ToolCallPart))
            result = self._text(self.code, self.scale * self.rng.randint(1, 3))
            self.messages.append(Message(Role.USER, (ToolResultPart(call.call_id, (TextPart(result),)),)))
        elif roll < 0.90:
            self.messages.append(self._user())
        elif roll < 0.945 and len(self.messages) > 8:
            self._edit()
        elif roll < 0.975 and len(self.messages) > 14:
            self._compact()
        else:
            self.tools, self.change = self._toolset(), "tools"
            self.messages.append(self._user())

    def _edit(self) -> None:
        """The user edits an earlier message, and the conversation continues from there."""
        user_messages = [
            index
            for index, message in enumerate(self.messages)
            if message.role is Role.USER and isinstance(message.parts[0], TextPart)
        ]
        self.messages = [
            *self.messages[: self.rng.choice(user_messages[len(user_messages) // 2 :])],
            self._user(),
        ]
        self.change = "edit"

    def _compact(self) -> None:
        """The editor replaces the beginning of the history by a summary."""
        start = len(self.messages) * 7 // 10
        while start < len(self.messages) and isinstance(self.messages[start].parts[0], ToolResultPart):
            start += 1
        summary = _message(Role.USER, "Summary of the conversation so far:\n" + self._text(PROSE, 2))
        self.messages = [self.messages[0], summary, *self.messages[start:], self._user()]
        self.change = "compact"


def _message(role: Role, text: str) -> Message:
    return Message(role, (TextPart(text),))


def steps(
    model: str,
    corpus: dict[str, list[str]],
    seed: int,
    conversations: int = 8,
    turns: int = 28,
    concurrent: int = 3,
    scale: int = 1,
) -> Iterator[Step]:
    """Yield the requests of several conversations, of which `concurrent` are open at any time."""
    rng = random.Random(seed)
    waiting = [_Conversation(number, model, corpus, rng, scale) for number in range(conversations)]
    live: list[_Conversation] = []
    while waiting or live:
        while waiting and len(live) < concurrent:
            live.append(waiting.pop(0))
        conversation = rng.choice(live)
        yield conversation.step()
        if conversation.turn >= turns:
            live.remove(conversation)
