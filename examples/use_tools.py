"""Let a model use a tool: offer it, run the call, send the result. Uses the embedded gateway.

python examples/use_tools.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from tollbridge import ChatRequest, Engine, Message, Role, Settings, Tool, ToolCallPart, ToolResultPart
from tollbridge.testing import Gateway

WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def get_weather(city: str) -> str:
    return f"Sunny in {city}, 21 °C."


async def main() -> None:
    async with (
        Gateway() as gateway,
        # With complete settings the settings file is not read, and nothing is stored without `persistent`.
        Engine.open(Settings(base_url=gateway.url), persistent=False) as engine,
    ):
        messages = [Message(Role.USER, "Use the tool to get the weather in Oslo.")]
        while True:
            request = ChatRequest(model="tollbridge/demo", messages=messages, tools=[WEATHER])
            result = await engine.create(request)
            print(result.text, result.usage)
            if not result.tool_calls:
                break
            messages += [result.message, Message(Role.USER, [run(call) for call in result.tool_calls])]
        print("Total:", engine.usage.total())


def run(call: ToolCallPart) -> ToolResultPart:
    arguments: dict[str, Any] = call.input
    print(f"→ {call.name}({arguments})")
    return ToolResultPart(call.call_id, get_weather(**arguments))


asyncio.run(main())
