"""A thread that writes, one thing after the other, for writing may have to wait for another process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

# SECTION Waiting for a write without standing still, and not for ever: another process may hold the file.

# How long a turn waits for what is written of it. A write takes a millisecond; one that takes longer than
# this goes on behind.
WRITE_TIMEOUT = 0.5


async def wait_for_write(writing: Future[Any] | None, within: float = WRITE_TIMEOUT) -> None:
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


# SECTION A thread that writes, one thing after the other, for writing may have to wait for another process.

T = TypeVar("T")


class WorkerThread:
    """Not a pool: its threads are waited for when the program ends, however long that takes."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, act: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        self._tasks.put(lambda: _settle(done, act))
        return done

    def close(self, within: float) -> None:
        """When all has been written; though not for ever."""
        self._tasks.put(None)
        self._thread.join(within)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


def _settle(done: Future[Any], act: Callable[[], object]) -> None:
    try:
        result = act()
    except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
        done.set_exception(error)
    else:
        done.set_result(result)
