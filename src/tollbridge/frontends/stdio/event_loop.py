"""The event loop of the sidecar in a thread of its own, and the queue of the calls it runs.

The queue has one rule: control never waits for data. `$/cancelRequest` must close the connection of a turn
within 100 ms, whatever the other turns, the gateways and the editor do at that moment.

-   The state of the queue is `_tasks`: the calls that were submitted and have not ended, by their id. A task
    is in it before it begins, so that a call can be cancelled while it waits for the engine to be loaded.
    Only the loop's thread changes it. Other threads pass functions to the loop with `call_soon_threadsafe`,
    in the order of the editor's messages: a cancellation comes after the call that it cancels.
-   There is no limit to the number of calls that run at once, and no waiting line between them. A stream
    takes minutes, so with a limit, control would wait for data: a pool of 200 connections was tried, and the
    201st stream waited for one until its connect timeout.
-   Calls that arrive together begin in different iterations of the loop. Preparing a request takes
    milliseconds, and an editor can send hundreds at once: begun in one iteration, they would delay a
    cancellation by their sum. `_beginning` is a lock that each call holds for one iteration.
-   Back pressure is not in this queue, but in `Output` and `Stdio`: a turn whose editor does not read waits
    before it writes, and then it does not read from its gateway either. Writing from the loop was tried: an
    editor that did not read blocked all turns, and the end of its input was not noticed.
-   The time slices that keep a fast stream from occupying the loop are in `transport/http.py`.

The thread is started after `initialize` was answered: importing what the loop needs takes longer than
answering that and every token count. docs/decisions/control-before-data.md and sidecar-threads.md have the
measurements.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tollbridge.frontends.stdio.limits import LIMITS
from tollbridge.frontends.stdio.watchdog import Heartbeat, Watchdog
from tollbridge.protocols.jsonrpc import Id

if TYPE_CHECKING:
    import asyncio

    from tollbridge.frontends.stdio.handlers import Handlers

Work = Callable[["Handlers"], Coroutine[Any, Any, Any]]
# Called with the result or the exception; a cancelled call ends with a CancelledError.
OnEnd = Callable[[Any, BaseException | None], object]


class EventLoopThread:
    """Runs calls in an event loop. The public methods are called from other threads.

    `load_handlers` runs in the loop's thread.
    """

    def __init__(self, load_handlers: Callable[[], Coroutine[Any, Any, Handlers]]) -> None:
        self.heartbeat = Heartbeat()
        self.watchdog = Watchdog(self.heartbeat)
        self._load_handlers = load_handlers
        self._thread = Thread(target=self._run, name="event-loop", daemon=True)
        self._tasks: dict[object, asyncio.Task[Any]] = {}
        # The following exist when `_ready` is set.
        self._ready = Event()
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event
        self._beginning: asyncio.Lock
        self._handlers: asyncio.Task[Handlers]

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def pending(self) -> int:
        """The number of calls that have not ended."""
        return len(self._tasks)

    def submit(self, call_id: object, work: Work, on_end: OnEnd) -> None:
        """Start a call; `on_end` is called once, in the loop's thread."""
        self._call_soon(self._begin, call_id, work, on_end)

    def cancel(self, call_id: Id) -> None:
        """Cancel a call, if it is still running."""
        self._call_soon(self._cancel, call_id)

    def cancel_all(self) -> None:
        self._call_soon(self._cancel_all)

    def stop(self) -> None:
        """Cancel all calls, close all connections, and wait for it for a limited time."""
        if self.started:
            self._call_soon(lambda: self._stopped.set())
            self._thread.join(LIMITS.loop_stop_seconds)

    def _call_soon(self, function: Callable[..., object], *args: object) -> None:
        self._ready.wait()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *args)

    # The following methods run in the loop's thread.

    def _run(self) -> None:
        import asyncio

        _allow_many_connections()
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._stopped, self._beginning = asyncio.Event(), asyncio.Lock()
            self._handlers = self._loop.create_task(self._load_handlers())
            self._ready.set()
            runner.run(self._run_until_stopped())

    async def _run_until_stopped(self) -> None:
        import asyncio

        supervising = self._loop.create_task(self._supervise())
        await self._stopped.wait()
        self._cancel_all()
        await asyncio.gather(*self._tasks.values(), self._handlers, return_exceptions=True)
        if self._handlers.exception() is None:
            await self._handlers.result().aclose()
        supervising.cancel()
        await asyncio.wait([supervising])

    async def _supervise(self) -> None:
        import asyncio

        await asyncio.wait([self._handlers])
        try:
            while True:
                self.watchdog.arm()
                interval = LIMITS.busy_interval if self._tasks else LIMITS.idle_interval
                self.heartbeat.plan(interval)
                await asyncio.sleep(interval)
                self.heartbeat.beat()
        finally:
            self.watchdog.disarm()

    def _begin(self, call_id: object, work: Work, on_end: OnEnd) -> None:
        task = self._loop.create_task(self._run_work(work))
        self._tasks[call_id] = task
        task.add_done_callback(lambda done: self._end(call_id, done, on_end))

    async def _run_work(self, work: Work) -> Any:
        import asyncio

        # If the handlers could not be created, every call fails with that error.
        handlers = await asyncio.shield(self._handlers)
        # The next call gets the lock in the iteration after this one, which `sleep(0)` waits for.
        async with self._beginning:
            await asyncio.sleep(0)
        return await work(handlers)

    def _end(self, call_id: object, task: asyncio.Task[Any], on_end: OnEnd) -> None:
        import asyncio

        self._tasks.pop(call_id, None)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        on_end(None if error else task.result(), error)

    def _cancel(self, call_id: Id) -> None:
        if (task := self._tasks.get(call_id)) is not None:
            task.cancel()

    def _cancel_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()


def _allow_many_connections() -> None:
    """Raise the process's limit of open files, within what the system allows."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = LIMITS.open_files if hard == resource.RLIM_INFINITY else min(hard, LIMITS.open_files)
        if soft < limit:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
