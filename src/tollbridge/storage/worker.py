"""A background thread that runs functions one after the other.

Writing to the database can block while another process holds the file's lock, so it must not happen on the
event loop's thread. `WorkerThread` runs such calls; `wait_for_write` waits for one of them in a coroutine.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

# Seconds that a turn waits for its own writes. A write takes about a millisecond; a slower write continues in
# the background.
WRITE_TIMEOUT = 0.5


class WorkerThread:
    """A daemon thread that runs the submitted functions in the order of submission.

    The thread starts with the first `submit`, so an unused worker costs nothing. Unlike the threads of
    `concurrent.futures.ThreadPoolExecutor`, it does not keep the interpreter from exiting: `close` waits at
    most for its timeout.

    Args:
        name: The thread's name, as shown in debuggers and tracebacks.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the thread, after everything submitted before. Threads can call this at any time.

        Returns:
            A future with the function's result, or with the exception it raised. A function submitted after
            `close` never runs, and its future is never done. Cancelling a future has an effect only before
            its function has started.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                return future
            if self._thread is None:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._tasks.put(lambda: _run_into(future, function))
        return future

    def close(self, timeout: float) -> None:
        """Wait until all submitted functions have run, at most `timeout` seconds; later ones are ignored.

        Functions that have not run by then still run in the background, until the interpreter exits. With a
        timeout of 0 this only ends the thread after the last function.
        """
        with self._lock:
            self._closed = True
            if self._thread is None:
                return
            self._tasks.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


def _run_into(future: Future[T], function: Callable[[], T]) -> None:
    """Run a function and put its result or its exception into the future."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - the caller gets it from the future
        future.set_exception(error)
    else:
        future.set_result(result)


async def wait_for_write(write: Future[Any] | None, within: float = WRITE_TIMEOUT) -> None:
    """Wait until a submitted write is done, at most `within` seconds. The write itself is not cancelled.

    Raises:
        BaseException: The exception that the write raised, if it ended in time.
    """
    import asyncio  # here: a program without an event loop can use `WorkerThread` without loading it

    if write is None:
        return
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake_up(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop may be closed before the write ends
            loop.call_soon_threadsafe(done.cancel)

    write.add_done_callback(wake_up)
    await asyncio.wait([done], timeout=within)
    if write.done():
        write.result()
