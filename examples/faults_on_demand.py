"""Use the embedded gateway to test a client: it simulates each fault, on a free port.

python examples/faults_on_demand.py
"""

from __future__ import annotations

import asyncio

from tollbridge import BridgeError, ChatRequest, Message, OpenResponsesClient, RetryPolicy, Role, TextDelta
from tollbridge.testing import Gateway

FAULTS = ("unauthorized", "rate-limit", "html-error", "error-event", "disconnect", "garbage", "crlf")


async def main() -> None:
    request = ChatRequest(model="tollbridge/demo", messages=(Message(Role.USER, "Hello!"),))
    for name in FAULTS:
        async with (
            Gateway(scenario=name) as gateway,
            OpenResponsesClient(gateway.url, retries=RetryPolicy(attempts=1)) as client,
        ):
            text = ""
            outcome = "ok"
            try:
                async for event in client.stream(request):
                    if isinstance(event, TextDelta):
                        text += event.text
            except BridgeError as error:
                outcome = error.kind
            print(f"{name:13} {outcome:15} {text[:40]!r} after {len(gateway.requests)} request(s)")


asyncio.run(main())
