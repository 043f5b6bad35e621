"""Let a model use a tool: offer it, run the call, send the result. Uses the embedded gateway.

python examples/use_tools.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.frontends.vscode.provider import Bridge
from tollbridge.testing.server import Gateway
from tollbridge.types.messages import (
    ChatRequest,
    Message,
    Part,
    Role,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)

WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def get_weather(city: str) -> str:
    return f"Sunny in {city}, 21 °C."


async def main() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        bridge = Bridge(client)
        messages = [Message(Role.USER, "Use the tool to get the weather in Oslo.")]
        while True:
            parts: list[Part] = []
            request = ChatRequest(model="tollbridge/demo", messages=tuple(messages), tools=(WEATHER,))
            turn = await bridge.answer(request, parts.extend)
            calls = [part for part in parts if isinstance(part, ToolCallPart)]
            print("".join(part.text for part in parts if isinstance(part, TextPart)), turn.usage)
            if not calls:
                break
            messages += [Message(Role.ASSISTANT, parts), Message(Role.USER, [run(call) for call in calls])]
        print("Total:", bridge.tracker.total())


def run(call: ToolCallPart) -> ToolResultPart:
    arguments: dict[str, Any] = call.input
    print(f"→ {call.name}({arguments})")
    return ToolResultPart(call.call_id, get_weather(**arguments))


asyncio.run(main())
