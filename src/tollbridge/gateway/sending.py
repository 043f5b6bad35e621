"""How answers leave: whole or in chunks, plain or compressed, to their end or dropped half-way."""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Literal

import brotli  # type: ignore[import-untyped]
from aiohttp import web

from tollbridge.gateway.arrivals import Arrival
from tollbridge.gateway.events import HangUp, Pause
from tollbridge.gateway.framing import Chunk

ARRIVAL = web.RequestKey("arrival", Arrival)
Encoding = Literal["gzip", "br"] | None
_FLUSH_SECONDS = 1.0


async def send_chunks(
    request: web.Request,
    chunks: Iterable[Chunk],
    content_type: str,
    encoding: Encoding = None,
    status: int = 200,
) -> web.StreamResponse:
    """Each chunk in a write of its own, as it comes."""
    response = web.StreamResponse(status=status, headers={"Content-Type": content_type})
    if content_type == "text/event-stream":
        response.headers["Cache-Control"] = "no-cache"
    if encoding is not None:
        response.headers["Content-Encoding"] = encoding
    press, finish = _COMPRESSORS[encoding]()
    await response.prepare(request)
    for chunk in chunks:
        match chunk:
            case bytes():
                await response.write(press(chunk))
            case Pause():
                await asyncio.sleep(chunk.seconds)
            case HangUp():
                await hang_up(request, chunk.reset)
                return response
    if rest := finish():
        await response.write(rest)
    await response.write_eof()
    return response


async def hang_up(request: web.Request, reset: bool = False) -> None:
    """Close the connection without ending the answer, once what was said is on its way."""
    request[ARRIVAL].dropped = True
    transport = request.transport
    if transport is None:
        return
    if isinstance(transport, asyncio.WriteTransport):
        waited = 0.0
        while transport.get_write_buffer_size() and waited < _FLUSH_SECONDS:
            await asyncio.sleep(0.01)
            waited += 0.01
    if reset:
        await asyncio.sleep(0.05)  # a reset also takes away what the other side has not read yet
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()


Compressor = tuple[Callable[[bytes], bytes], Callable[[], bytes]]


def _plain() -> Compressor:
    return bytes, bytes


def _gzip() -> Compressor:
    press = zlib.compressobj(wbits=31)
    # Flushed for every chunk, or an event would wait for those after it.
    return lambda data: press.compress(data) + press.flush(zlib.Z_SYNC_FLUSH), press.flush


def _brotli() -> Compressor:
    press = brotli.Compressor(quality=4)
    return lambda data: press.process(data) + press.flush(), press.finish


_COMPRESSORS: dict[Encoding, Callable[[], Compressor]] = {None: _plain, "gzip": _gzip, "br": _brotli}
