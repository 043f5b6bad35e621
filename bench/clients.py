"""The clients to compare. Each runs in its own process and prints its measurements as one line of JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable

ROUNDS = 6  # streams read in one process; the first warms up and is not counted


def ours(url: str) -> Callable[[], int]:
    """Tollbridge: from the socket through frames and events to parts."""
    from tollbridge.clients.observer import Observer
    from tollbridge.clients.protocols import OpenResponsesClient
    from tollbridge.request_context import RequestContext
    from tollbridge.turn import Turn
    from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart

    class _ReadCounter(Observer):
        def data(self, _chunk: bytes) -> None:
            _count_read()

    request = ChatRequest(model="bench", messages=(Message(Role.USER, (TextPart("go"),)),))

    async def read() -> int:
        characters = 0

        def report(parts: list[Part]) -> None:
            nonlocal characters
            _note_first_event()
            characters += sum(len(part.text) for part in parts if isinstance(part, TextPart))

        async with OpenResponsesClient(url) as client:
            context = RequestContext(client=client, model=request.model, observers=[_ReadCounter()])
            async with Turn(request, context) as turn:
                async for parts in turn.parts():
                    report(parts)
        return characters

    return lambda: asyncio.run(read())


def openai(url: str) -> Callable[[], int]:
    """The `openai` package's asynchronous client."""
    from openai import AsyncOpenAI

    async def read() -> int:
        characters = 0
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            stream = await client.responses.create(model="bench", input="go", stream=True)
            async for event in stream:
                _note_first_event()
                if event.type == "response.output_text.delta":
                    characters += len(event.delta)
        return characters

    return lambda: asyncio.run(read())


def socket_only(url: str) -> Callable[[], int]:
    """A baseline: read all bytes from a socket and drop them."""
    port = int(url.rsplit(":", 1)[1].partition("/")[0])
    request = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"

    def read() -> int:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request)
            tail = b""
            while not tail.endswith(b"0\r\n\r\n"):
                tail = connection.recv(65536)
                _count_read()
                _note_first_event()
        return 0

    return read


def decode_only(_: str) -> Callable[[], int]:
    """A baseline: decode the same events from memory with msgspec, and drop them."""
    from bench.stream import frames
    from tollbridge.protocols.openresponses.wire import read_delta

    data = [frame.partition(b"data: ")[2].strip() for frame in frames() if b".delta" in frame]

    def read() -> int:
        for payload in data:
            read_delta(payload)
        return 0

    return read


CLIENTS = {"ours": ours, "openai": openai, "socket": socket_only, "decode": decode_only}

_started = time.time()  # replaced by the start of the process when run as a program
_first_event: float | None = None
_reads = 0


def _note_first_event() -> None:
    global _first_event
    if _first_event is None:
        _first_event = time.time() - _started


def _count_read() -> None:
    global _reads
    _reads += 1


def main(name: str, url: str, events: int) -> None:
    """Read the stream several times, and print medians as JSON.

    Args:
        name: The client, a key of `CLIENTS`.
        url: Base URL of the server.
        events: Number of events in the stream.
    """
    read = CLIENTS[name](url)
    costs: list[tuple[float, float]] = []
    characters = 0
    for _ in range(ROUNDS):
        cpu, wall = time.process_time(), time.perf_counter()
        characters = read()
        costs.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = (statistics.median(column) for column in zip(*costs[1:], strict=True))
    print(
        json.dumps(
            {
                "client": name,
                "cpu_us": cpu / events * 1e6,
                "events_s": events / wall,
                "first_ms": None if _first_event is None else _first_event * 1000,
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "characters": characters,
                "events_read": events * ROUNDS / _reads if _reads else None,
            }
        )
    )


if __name__ == "__main__":
    _started = float(sys.argv[3])
    main(sys.argv[1], sys.argv[2], int(sys.argv[4]))
