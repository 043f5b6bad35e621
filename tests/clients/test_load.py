"""Many streams at once, and one long stream: no errors, and no growth of memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import psutil
import pytest
from tests.turns import Runner

from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart

EVENTS = 1_000_000
DELTA = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"msg_1",'
    b'"output_index":0,"content_index":0,"delta":" word","sequence_number":1,"logprobs":[]}\n\n'
)
LAST = (
    b'data: {"type":"response.completed","response":{"status":"completed","output":[]}}\n\ndata: [DONE]\n\n'
)


async def test_a_hundred_concurrent_streams_end_without_errors() -> None:
    async with (
        Gateway(settings=FaultSettings(pace=0.01)) as gateway,
        OpenResponsesClient(gateway.url) as client,
    ):

        async def turn(number: int) -> tuple[int, str]:
            parts: list[Part] = []
            question = f"slow: this is question {number}"
            request = ChatRequest(model="tollbridge/demo", messages=(Message(Role.USER, question),))
            await Runner(client).run(request, parts.extend)
            return number, "".join(part.text for part in parts if isinstance(part, TextPart))

        answers = await asyncio.gather(*(turn(number) for number in range(100)))
    assert len(answers) == 100
    assert all(f"question {number}" in text for number, text in answers)


@pytest.mark.slow
async def test_memory_does_not_grow_over_a_million_events() -> None:
    process = psutil.Process()
    sizes: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        block = DELTA * 100
        for sent in range(0, EVENTS, 100):
            writer.write(block)
            await writer.drain()
            if sent % (EVENTS // 10) == 0:
                gc.collect()
                sizes.append(process.memory_info().rss)
        writer.write(LAST)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    characters = 0

    def report(parts: list[Part]) -> None:
        nonlocal characters
        characters += sum(len(part.text) for part in parts if isinstance(part, TextPart))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, OpenResponsesClient(f"http://127.0.0.1:{port}/v1") as client:
        request = ChatRequest(model="m", messages=(Message(Role.USER, "go"),))
        await Runner(client).run(request, report)
    assert characters == EVENTS * len(" word")
    # The allocator needs the first tenth to reach its size.
    assert max(sizes[2:]) - sizes[1] < 5 * 1024 * 1024
