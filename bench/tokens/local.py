"""Accuracy with a real model on this machine: thirty turns, compared with the usage it reports.

python -m bench.tokens.local
"""

from __future__ import annotations

import asyncio
import random

from rich.console import Console
from rich.table import Table

from bench.targets import at_most, exit_if_missed
from bench.tokens.corpus import corpus
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.local.process import LocalModel
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, Message, Role, TextPart

CONVERSATIONS, TURNS = 3, 10
# Targets in %: the mean error from the third turn on, and the error of the second conversation's first turn.
LATE_TARGET, SECOND_TARGET = 1.0, 5.0
KINDS = ("markdown", "python", "json", "html", "listing", "log")


def _message(role: Role, text: str) -> Message:
    return Message(role, (TextPart(text),))


async def _turn(client: OpenResponsesClient, request: ChatRequest) -> tuple[str, Usage]:
    answer = await client.create(request)
    assert answer.usage is not None
    return answer.text, answer.usage


async def run() -> list[tuple[int, int, int, int]]:
    """Return the conversation, turn, estimate and reported tokens of every request."""
    rng, texts = random.Random(3), corpus()
    estimator = HybridTokenEstimator()
    results = []
    async with LocalModel() as local, OpenResponsesClient(local.url) as client:
        for conversation in range(CONVERSATIONS):
            messages = [
                _message(Role.SYSTEM, "You help with a project. " + rng.choice(texts["markdown"])[:800])
            ]
            for turn in range(TURNS):
                text = rng.choice(texts[rng.choice(KINDS)])[: rng.randint(80, 500)]
                messages.append(_message(Role.USER, f"What does this say?\n\n{text}"))
                request = ChatRequest(model=local.model_id, messages=tuple(messages), max_output_tokens=24)
                estimate = estimator.estimate_request(request).tokens
                answer, usage = await _turn(client, request)
                results.append((conversation, turn, estimate, usage.input_tokens or 0))
                estimator.calibrate_request(request, usage, [TextPart(answer)])
                messages.append(_message(Role.ASSISTANT, answer))
    return results


def main() -> list[str]:
    """Run the benchmark and return the missed targets."""
    table = Table(
        "conversation",
        "turn",
        "estimate",
        "reported",
        "error",
        title="Estimates and the usage of a local model",
    )
    results = asyncio.run(run())
    for conversation, turn, estimate, actual in results:
        error = 100 * (estimate - actual) / actual
        table.add_row(str(conversation + 1), str(turn + 1), f"{estimate:,}", f"{actual:,}", f"{error:+.2f} %")
    console = Console(width=100)
    console.print(table)
    errors = [
        (conversation, turn, (estimate - actual) / actual) for conversation, turn, estimate, actual in results
    ]
    late = [abs(error) for _, turn, error in errors if turn >= 2]
    mean = 100 * sum(late) / len(late)
    console.print(f"mean error from the third turn on: {mean:.2f} % (target: at most {LATE_TARGET:g} %)")
    second = 100 * next(error for conversation, turn, error in errors if (conversation, turn) == (1, 0))
    console.print(f"error in turn 1 of conversation 2: {second:+.2f} % (target: at most {SECOND_TARGET:g} %)")
    warm = [error for conversation, _, error in errors if conversation]
    under = sum(error < -0.01 for error in warm)
    console.print(f"too low by more than 1 %, after the first conversation: {under} of {len(warm)}")
    missed = at_most("mean error from the third turn on", mean, LATE_TARGET, " %")
    return [*missed, *at_most("error in turn 1 of conversation 2", abs(second), SECOND_TARGET, " %")]


if __name__ == "__main__":
    exit_if_missed(main())
