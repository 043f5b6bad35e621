"""The real thing: thirty turns with a real model on this machine, its own usage as the truth.

python -m bench.tokens.local
"""

from __future__ import annotations

import asyncio
import random

from rich.console import Console
from rich.table import Table

from bench.targets import at_most, leave
from bench.tokens.corpus import corpus
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.local.process import LocalModel
from tollbridge.types.messages import ChatRequest, Message, Role, TextPart
from tollbridge.types.usage import Usage

TALKS, TURNS = 3, 10
# Targets, in %: the mean error from the third turn on, and that of the second conversation's first turn.
MOST_LATE, MOST_SECOND = 1.0, 5.0
KINDS = ("markdown", "python", "json", "html", "listing", "log")


def _said(role: Role, text: str) -> Message:
    return Message(role, (TextPart(text),))


async def _turn(client: OpenResponsesClient, request: ChatRequest) -> tuple[str, Usage]:
    answer = await client.create(request)
    assert answer.usage is not None
    return answer.text, answer.usage


async def run() -> list[tuple[int, int, int, int]]:
    """Conversation, turn, estimate, truth."""
    chance, texts = random.Random(3), corpus()
    estimator = HybridTokenEstimator()
    found = []
    async with LocalModel() as local, OpenResponsesClient(local.url) as client:
        for talk in range(TALKS):
            messages = [
                _said(Role.SYSTEM, "You help with a project. " + chance.choice(texts["markdown"])[:800])
            ]
            for turn in range(TURNS):
                asked = chance.choice(texts[chance.choice(KINDS)])[: chance.randint(80, 500)]
                messages.append(_said(Role.USER, f"What does this say?\n\n{asked}"))
                request = ChatRequest(model=local.model_id, messages=tuple(messages), max_output_tokens=24)
                estimate = estimator.estimate_request(request).tokens
                said, usage = await _turn(client, request)
                found.append((talk, turn, estimate, usage.input_tokens or 0))
                estimator.calibrate_request(request, usage, [TextPart(said)])
                messages.append(_said(Role.ASSISTANT, said))
    return found


def main() -> list[str]:
    """The targets that were missed."""
    table = Table("conversation", "turn", "estimate", "truth", "error", title="a local model's own usage")
    found = asyncio.run(run())
    for talk, turn, estimate, truth in found:
        error = 100 * (estimate - truth) / truth
        table.add_row(str(talk + 1), str(turn + 1), f"{estimate:,}", f"{truth:,}", f"{error:+.2f} %")
    console = Console(width=100)
    console.print(table)
    errors = [(talk, turn, (estimate - truth) / truth) for talk, turn, estimate, truth in found]
    late = [abs(error) for _, turn, error in errors if turn >= 2]
    mean = 100 * sum(late) / len(late)
    console.print(f"from the third turn on, mean error: {mean:.2f} % (at most {MOST_LATE:g})")
    second = 100 * next(error for talk, turn, error in errors if (talk, turn) == (1, 0))
    console.print(f"the second conversation's first turn: {second:+.2f} % (at most {MOST_SECOND:g})")
    warm = [error for talk, _, error in errors if talk]
    under = sum(error < -0.01 for error in warm)
    console.print(f"after the first conversation, under by more than 1 %: {under} of {len(warm)}")
    missed = at_most("from the third turn on, mean error", mean, MOST_LATE, " %")
    return [*missed, *at_most("the second conversation's first turn", abs(second), MOST_SECOND, " %")]


if __name__ == "__main__":
    leave(main())
