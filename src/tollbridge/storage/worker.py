"""A background thread that runs functions one after the other, and results that can be awaited.

Writing to a database can block while another process holds its lock, and comparing long prompts takes long,
so neither may happen on the event loop's thread. `WorkerThread` runs such calls and returns a `Pending` for
each; `wait_for_write` waits for one of them in a coroutine, but not longer than a turn may be delayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from tollbridge.storage.store import StoreBusy, StoreUnusable

T = TypeVar("T")

# Seconds that a turn waits for its own writes. A write takes about a millisecond; a slower write continues in
# the background.
WRITE_TIMEOUT = 0.5


class Pending(Future[T]):
    """A result that is computed on another thread. Threads call `result`, coroutines use `await`."""

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio  # here: a program without an event loop can use `WorkerThread` without loading it

        return asyncio.wrap_future(self).__await__()


class WorkerThread:
    """A daemon thread that runs the submitted functions in the order of submission.

    The thread starts with the first `submit`, so an unused worker costs nothing. Unlike the threads of
    `concurrent.futures.ThreadPoolExecutor`, it does not keep the interpreter from exiting: `close` waits at
    most for its timeout.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # Functions that run at a time of the monotonic clock. The number keeps the order of equal times.
        self._timed_tasks: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def submit(self, function: Callable[[], T]) -> Pending[T]:
        """Run `function` on the thread, after everything submitted before. Threads can call this at any time.

        Returns:
            The function's result, or the exception it raised. A function submitted after `close` never runs,
            and its result is never done. Cancelling it has an effect only before the function has started.
        """
        pending: Pending[T] = Pending()
        self._put(lambda: _run_into(pending, function))
        return pending

    def run(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run `function` on the thread, after everything submitted before, and wait for its result.

        Raises:
            StoreUnusable: The thread was closed before.
            StoreBusy: The function had not started after `timeout` seconds, and will not be run.
        """
        pending: Pending[T] = Pending()
        if not self._put(lambda: _run_into(pending, function)):
            raise StoreUnusable(f"The {self._name} is closed.")
        wait([pending], timeout)
        if pending.cancel():
            raise StoreBusy(f"The {self._name} is busy: another process may hold its lock.")
        return pending.result()

    def call_later(self, delay: float, function: Callable[[], object]) -> None:
        """Run `function`, which must not raise, after this many seconds, unless the thread ends before."""
        when = time.monotonic() + delay
        self._put(lambda: heappush(self._timed_tasks, (when, next(self._numbers), function)))

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

    def _put(self, task: Callable[[], object]) -> bool:
        """Add a task, and return whether it will run."""
        with self._lock:
            if self._closed:
                return False
            if self._thread is None:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._tasks.put(task)
            return True

    def _run(self) -> None:
        while True:
            wait = None
            if self._timed_tasks:
                wait = self._timed_tasks[0][0] - time.monotonic()
                if wait <= 0:
                    heappop(self._timed_tasks)[2]()
                    continue
            try:
                task = self._tasks.get(timeout=wait)
            except Empty:
                continue
            if task is None:
                return
            task()


class BatchQueue(Generic[T]):
    """Passes items to a function on a worker thread, with one call for all that have arrived meanwhile.

    Args:
        handle: Is called with the items, in order. It must not raise.
    """

    def __init__(self, worker: WorkerThread, handle: Callable[[list[T]], object]) -> None:
        self._worker = worker
        self._handle = handle
        self._lock = Lock()
        self._items: list[T] = []
        self._batch: Pending[None] | None = None  # is done when these items have been handled
        self._is_submitted = False

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T, delay: float = 0.0) -> Pending[None]:
        """Add an item. The result is done when it has been handled.

        Args:
            delay: Seconds in which more items may follow. It ends when an item without a delay is added. The
                thread does other work meanwhile.
        """
        with self._lock:
            self._items.append(item)
            if self._batch is None:
                self._batch = Pending()
                self._batch.set_running_or_notify_cancel()  # several callers share it: none can cancel it
                if delay > 0:
                    self._worker.call_later(delay, self._handle_items)
            batch = self._batch
        if delay == 0:
            self.hurry()
        return batch

    def hurry(self) -> None:
        """Handle the items now, whatever their delays."""
        with self._lock:
            if self._items and not self._is_submitted:
                self._is_submitted = True
                self._worker.submit(self._handle_items)

    def _handle_items(self) -> None:
        with self._lock:
            items, self._items = self._items, []
            batch, self._batch, self._is_submitted = self._batch, None, False
        if batch is not None:
            self._handle(items)
            batch.set_result(None)


def _run_into(pending: Pending[T], function: Callable[[], T]) -> None:
    """Run a function and set its result or its exception."""
    if not pending.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - the caller gets it from the future
        pending.set_exception(error)
    else:
        pending.set_result(result)


async def wait_for_write(write: Future[Any] | None, within: float = WRITE_TIMEOUT) -> None:
    """Wait until a submitted write is done, at most `within` seconds. The write itself is not cancelled.

    Raises:
        BaseException: The exception that the write raised, if it ended in time.
    """
    import asyncio

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
