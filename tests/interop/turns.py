"""An examination and a turn with tools, for tests of real servers."""

from __future__ import annotations

from pathlib import Path

from tests.turns import Runner

from tollbridge.answer import Answer
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.compat.profiles import find_quirks
from tollbridge.doctor.content_checks import WEATHER
from tollbridge.doctor.examination import Examination
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.messages import ChatRequest, Message, Part, TextPart, ThinkingPart


async def examine(url: str, key: str | None = None, model: str | None = None) -> Examination:
    async with OpenResponsesClient(url, key) as client:
        examination = Examination(client, model)
        async for _ in examination.run():
            pass
    return examination


async def run_turn(
    url: str,
    model: str,
    *messages: Message,
    key: str | None = None,
    folder: Path | None = None,
    effort: str | None = None,
) -> tuple[Answer, list[Part]]:
    """Run a turn with a tool, with the profiles in a folder, and return its result and its parts."""
    parts: list[Part] = []
    request = ChatRequest(model=model, messages=messages, tools=(WEATHER,), reasoning_effort=effort)
    lessons = CompatMemory(lambda base_url, name: find_quirks(base_url, name, folder))
    async with OpenResponsesClient(url, key, retries=RetryPolicy(attempts=1)) as client:
        turn = await Runner(client, compat=lessons).run(request, parts.extend)
    return turn, parts


def join_text(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def join_reasoning(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ThinkingPart))
