"""Stream an answer and print its token usage. Uses the embedded gateway: no key, no network.

python examples/stream_an_answer.py
"""

from __future__ import annotations

import asyncio

from tollbridge import ChatRequest, Finished, Message, OpenResponsesClient, ReasoningDelta, Role, TextDelta
from tollbridge.testing import Gateway


async def main() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        for model in await client.models():
            print(model.id, model.context_window)
        question = Message(Role.USER, "Think, then say hello.")
        async for event in client.stream(ChatRequest(model="tollbridge/demo", messages=(question,))):
            match event:
                case ReasoningDelta(text):
                    print(f"\x1b[2m{text}\x1b[0m", end="", flush=True)
                case TextDelta(text):
                    print(text, end="", flush=True)
                case Finished(reason, usage=usage):
                    print(f"\n{reason}: {usage}")


asyncio.run(main())
