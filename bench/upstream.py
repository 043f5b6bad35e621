"""A gateway for proxy benchmarks: streams of Chat Completions or Responses, as fast as possible or paced.

Every chunk contains the time at which it was sent, by the clock that all processes of the machine share, so
that the receiver can compute how long the chunk was on its way.
"""

from __future__ import annotations

import asyncio
import json
import re
import time

CHUNKS = 50
TIME_FIELD = b"sent_at:"
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Cache-Control: no-cache\r\n\r\n"
)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
# The prompt of a paced stream names the events per second and their number: `pace 40 200`.
_PACE = re.compile(rb"pace (\d+) (\d+)")


def chat_chunk(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def chat_end() -> bytes:
    choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": CHUNKS, "total_tokens": 10 + CHUNKS}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps({**chunk, "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n"


class Upstream(asyncio.Protocol):
    """Answers every request with a stream."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, _, rest = self._data.partition(b"\r\n\r\n")
            match = _LENGTH.search(head)
            length = int(match[1]) if match else 0
            if len(rest) < length:
                return
            body, self._data = rest[:length], rest[length:]
            task = asyncio.ensure_future(self._answer(body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, body: bytes) -> None:
        pace = _PACE.search(body)
        interval, count = (1 / int(pace[1]), int(pace[2])) if pace else (0.0, CHUNKS)
        self._write(_HEAD)
        due = time.monotonic()
        for _ in range(count):
            if interval:
                due += interval
                await asyncio.sleep(due - time.monotonic())
            self._write_chunk(chat_chunk(f" {TIME_FIELD.decode()}{time.monotonic_ns()};"))
        self._write_chunk(chat_end())
        self._write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _write_chunk(self, data: bytes) -> None:
        self._write(b"%x\r\n%s\r\n" % (len(data), data))


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
