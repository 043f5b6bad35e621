"""Waiting for a write without standing still, and not for ever: another process may hold the file."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

# How long a turn waits for what is written of it. A write takes a millisecond; one that takes longer than
# this goes on behind.
WITHIN = 0.5


async def settled(writing: Future[Any] | None, within: float = WITHIN) -> None:
    """Until it is written, or for as long as one may wait. Raises what the writing raised."""
    if writing is None:
        return
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def tell(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop may have ended before the writing did
            loop.call_soon_threadsafe(done.cancel)

    writing.add_done_callback(tell)
    await asyncio.wait([done], timeout=within)
    if writing.done():
        writing.result()
