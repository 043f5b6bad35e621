"""Conversations as an agent has them: interleaved, edited, compacted, with tools that come and go."""

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

Happening = Literal["new", "append", "edit", "compact", "tools"]

CODE = ("python", "javascript", "c", "json", "html", "log", "diff", "listing")
PROSE = ("markdown",)
_TYPES = ("string", "integer")
FOREIGN = ("chinese", "japanese", "russian", "arabic", "korean", "german", "french")


class Step(msgspec.Struct, frozen=True):
    """One request: which conversation and turn, what happened since the last, and the answer it gets."""

    conversation: int
    turn: int
    happening: Happening
    request: ChatRequest
    answer: tuple[Part, ...]
    reasoning: int


class _Talk:
    """One conversation in the making."""

    def __init__(self, number: int, model: str, corpus: dict[str, list[str]], chance: random.Random) -> None:
        self.number, self.model, self.corpus, self.chance = number, model, corpus, chance
        foreign = [kind for kind in FOREIGN if kind in corpus] or PROSE
        self.prose = chance.choice(foreign) if chance.random() < 0.2 else "markdown"
        self.turn, self.calls, self.happening = 0, 0, "new"
        self.tools = self._toolset()
        self.messages = [_spoken(Role.SYSTEM, self._text(PROSE, 4)), self._user()]

    def _text(self, kinds: tuple[str, ...], chunks: int = 1) -> str:
        found = [self.chance.choice(self.corpus[self.chance.choice(kinds)]) for _ in range(chunks)]
        return "\n\n".join(found)

    def _user(self) -> Message:
        said = self._text((self.prose,))[: self.chance.randint(60, 900)]
        if self.chance.random() < 0.5:
            said += f"\n```\n{self._text(CODE)}\n```"
        return _spoken(Role.USER, said)

    def _toolset(self) -> tuple[Tool, ...]:
        words = re.findall(r"[a-z]{3,}", self._text(PROSE, 3).lower()) or ["path"]

        def name() -> str:
            return "_".join(self.chance.choices(words, k=2))

        def described() -> str:
            return " ".join(self.chance.choices(words, k=self.chance.randint(6, 40)))

        return tuple(
            Tool(
                f"{name()}_{number}",
                described().capitalize() + ".",
                {
                    "type": "object",
                    "properties": {
                        name(): {"type": self.chance.choice(_TYPES), "description": described()}
                        for _ in range(self.chance.randint(1, 6))
                    },
                    "required": [name()],
                },
            )
            for number in range(self.chance.randint(8, 30))
        )

    def step(self) -> Step:
        self.turn += 1
        request = ChatRequest(model=self.model, messages=tuple(self.messages), tools=self.tools)
        chance = self.chance.random()
        reasoning = round(self.chance.lognormvariate(5.5, 0.9)) if self.chance.random() < 0.6 else 0
        answer = self._call(reasoning) if chance < 0.62 else self._say(reasoning)
        step = Step(self.number, self.turn, self.happening, request, answer, reasoning)  # type: ignore[arg-type]
        self._evolve(chance, answer)
        return step

    def _think(self, reasoning: int) -> tuple[Part, ...]:
        # The text is a summary; what was really thought travels sealed in the metadata.
        return (ThinkingPart("Looking at this.", metadata={"signature": "x" * 80}),) if reasoning else ()

    def _say(self, reasoning: int) -> tuple[Part, ...]:
        said = f"{self._text((self.prose,))}\n\n```\n{self._text(CODE)}\n```"
        return *self._think(reasoning), TextPart(said)

    def _call(self, reasoning: int) -> tuple[Part, ...]:
        self.calls += 1
        given = {"path": f"/src/module_{self.calls}.py", "content": self._text(CODE)[:800]}
        call = ToolCallPart(f"call_{self.number}_{self.calls}", self.chance.choice(self.tools).name, given)
        return *self._think(reasoning), call

    def _evolve(self, chance: float, answer: tuple[Part, ...]) -> None:
        self.happening = "append"
        self.messages.append(Message(Role.ASSISTANT, answer))
        if chance < 0.62:
            call = next(part for part in answer if isinstance(part, ToolCallPart))
            result = self._text(CODE, self.chance.randint(1, 3))
            self.messages.append(Message(Role.USER, (ToolResultPart(call.call_id, (TextPart(result),)),)))
        elif chance < 0.90:
            self.messages.append(self._user())
        elif chance < 0.945 and len(self.messages) > 8:
            self._edit()
        elif chance < 0.975 and len(self.messages) > 14:
            self._compact()
        else:
            self.tools, self.happening = self._toolset(), "tools"
            self.messages.append(self._user())

    def _edit(self) -> None:
        """The user goes back to an earlier word and says something else."""
        spoken = [
            place
            for place, message in enumerate(self.messages)
            if message.role is Role.USER and isinstance(message.parts[0], TextPart)
        ]
        self.messages = [*self.messages[: self.chance.choice(spoken[len(spoken) // 2 :])], self._user()]
        self.happening = "edit"

    def _compact(self) -> None:
        """The editor replaces the first part of the history by a summary."""
        start = len(self.messages) * 7 // 10
        while start < len(self.messages) and isinstance(self.messages[start].parts[0], ToolResultPart):
            start += 1
        summary = _spoken(Role.USER, "Summary of the conversation so far:\n" + self._text(PROSE, 2))
        self.messages = [self.messages[0], summary, *self.messages[start:], self._user()]
        self.happening = "compact"


def _spoken(role: Role, text: str) -> Message:
    return Message(role, (TextPart(text),))


def steps(
    model: str, corpus: dict[str, list[str]], seed: int, talks: int = 8, turns: int = 28, at_once: int = 3
) -> Iterator[Step]:
    """All requests of some conversations, a few of them open at any time."""
    chance = random.Random(seed)
    waiting = [_Talk(number, model, corpus, chance) for number in range(talks)]
    live: list[_Talk] = []
    while waiting or live:
        while waiting and len(live) < at_once:
            live.append(waiting.pop(0))
        talk = chance.choice(live)
        yield talk.step()
        if talk.turn >= turns:
            live.remove(talk)
