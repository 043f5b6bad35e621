"""A server that sends given bytes as responses: for those that the embedded gateway cannot send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from tests.transport.servers import serving


class Answering:
    """`heads` are the received requests, without their bodies."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.heads: list[str] = []
        self.url = ""
        self._answers = answers

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0
        )
        await reader.readexactly(length)
        self.heads.append(head)
        writer.write(self._answers[min(len(self.heads), len(self._answers)) - 1])
        await writer.drain()


@contextlib.asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[Answering]:
    """Serve these responses in their order. The last one is repeated for all further requests."""
    server = Answering(answers)
    async with serving(server) as port:
        server.url = f"http://127.0.0.1:{port}/v1"
        yield server


def http(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} Something", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
