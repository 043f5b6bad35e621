"""The compared ways to estimate a prompt: the first design, a plain tokenizer, and Tollbridge's ledger."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Protocol

from bench.tokens.conversations import Step
from bench.tokens.references import o200k
from tollbridge.tokens.features import TokenTable
from tollbridge.tokens.ledger import Ledger
from tollbridge.tokens.prompts import compact_json
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, TextPart, ToolCallPart, ToolResultPart


class Scheme(Protocol):
    """A way to estimate prompts, which can learn from reported usage."""

    def estimate(self, request: ChatRequest) -> float: ...

    def deviation(self, request: ChatRequest) -> float:
        """Return the standard deviation of the estimate; infinite if it is not stated."""

    def difference(self, request: ChatRequest, actual: int) -> float:
        """Return the actual tokens less the estimate without its safety margin."""

    def learn(self, step: Step, usage: Usage, estimate: float) -> None: ...


class _Plain:
    """A scheme that does not state how certain it is."""

    def deviation(self, request: ChatRequest) -> float:  # noqa: ARG002
        return float("inf")

    def difference(self, request: ChatRequest, actual: int) -> float:  # noqa: ARG002
        return 0.0


class FirstDesign(_Plain):
    """Characters / 3.5 x 1.1, 4 tokens per message; one state and one factor for all conversations."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._length = 0
        self._factor = 1.0

    def estimate(self, request: ChatRequest) -> float:
        messages = request.messages
        if self._last is not None and len(messages) > self._length > 0:
            return self._last + self._messages(messages[self._length :])
        return ceil(self._messages(messages) * self._factor)

    def learn(self, step: Step, usage: Usage, estimate: float) -> None:
        self._last, self._length = usage.input_tokens, len(step.request.messages)
        self._factor = self._factor * 0.7 + (usage.input_tokens or 0) / estimate * 0.3

    def _messages(self, messages: Sequence[Message]) -> int:
        return sum(4 + ceil(self._message(message) * 1.1) for message in messages)

    def _message(self, message: Message) -> float:
        total = 0.0
        for part in message.parts:
            match part:
                case TextPart():
                    total += len(part.text) / 3.5
                case ToolCallPart():
                    total += (len(part.name) + len(compact_json(part.input)) + 50) / 3.5
                case ToolResultPart():
                    texts = (inner.text for inner in part.parts if isinstance(inner, TextPart))
                    total += 20 + sum(len(text) / 3.5 for text in texts)
                case _:
                    pass
        return total


class PlainTokenizer(_Plain):
    """o200k for all text, 4 tokens per message, tools as their JSON, no learning."""

    def __init__(self) -> None:
        self._encoding = o200k()
        self._texts: dict[str, int] = {}

    def _count(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._encoding.encode_ordinary(text))
        return self._texts[text]

    def estimate(self, request: ChatRequest) -> float:
        total = 3 + 4 * len(request.messages)
        for message in request.messages:
            for part in message.parts:
                match part:
                    case TextPart():
                        total += self._count(part.text)
                    case ToolCallPart():
                        total += self._count(part.name) + self._count(compact_json(part.input))
                    case ToolResultPart():
                        texts = (inner.text for inner in part.parts if isinstance(inner, TextPart))
                        total += sum(map(self._count, texts))
                    case _:
                        pass
        return total + sum(self._count(compact_json(tool)) for tool in request.tools)

    def learn(self, step: Step, usage: Usage, estimate: float) -> None:
        pass


class LedgerScheme:
    """The ledger of Tollbridge.

    Args:
        table: A table without the tokenizer of the simulated provider; by default the one of the package.
    """

    def __init__(self, table: TokenTable | None = None) -> None:
        self._ledger = Ledger(table=table)

    def estimate(self, request: ChatRequest) -> float:
        return self._ledger.estimate(request).tokens

    def deviation(self, request: ChatRequest) -> float:
        return self._ledger.predict(request).deviation

    def difference(self, request: ChatRequest, actual: int) -> float:
        return actual - self._ledger.predict(request).tokens

    def learn(self, step: Step, usage: Usage, estimate: float) -> None:  # noqa: ARG002
        self._ledger.record(step.request, usage, answer=step.answer)


class UntaughtLedger(LedgerScheme):
    """The ledger of Tollbridge, which never gets a reported count."""

    def learn(self, step: Step, usage: Usage, estimate: float) -> None:
        pass
