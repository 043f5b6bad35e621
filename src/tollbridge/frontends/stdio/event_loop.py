"""An event loop in a thread of its own, started after `initialize` was answered.

Importing what the loop needs takes longer than answering `initialize` and every token count.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tollbridge.protocols.jsonrpc import Id

if TYPE_CHECKING:
    import asyncio

    from tollbridge.frontends.stdio.handlers import Handlers

# Seconds to wait for the loop to end.
LOOP_STOP_SECONDS = 2.0

Work = Callable[["Handlers"], Coroutine[Any, Any, Any]]
# Called with the result or the exception; a cancelled request ends with a CancelledError.
OnEnd = Callable[[Any, BaseException | None], object]


class EventLoopThread:
    """Runs requests in an event loop. The methods are called from the thread that reads.

    Args:
        make_handlers: Creates the handlers, in the loop's thread.
    """

    def __init__(self, make_handlers: Callable[[], Handlers]) -> None:
        self._make_handlers = make_handlers
        self._thread = Thread(target=self._run, name="event-loop", daemon=True)
        self._ready = Event()
        self._running: _RunningLoop | None = None

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def pending(self) -> int:
        """The number of requests that have not ended."""
        return len(self._running.tasks) if self._running else 0

    def submit(self, call_id: object, work: Work, on_end: OnEnd) -> None:
        """Start a request; `on_end` is called once, in the loop's thread."""
        self._call_soon(lambda running: running.begin(call_id, work, on_end))

    def cancel(self, call_id: Id) -> None:
        """Cancel a request, if it is still running."""
        self._call_soon(lambda running: running.cancel(call_id))

    def cancel_all(self) -> None:
        self._call_soon(lambda running: running.cancel_all())

    def stop(self) -> None:
        """Cancel all requests, close all connections, and wait for it for a limited time."""
        if self.started:
            self._call_soon(lambda running: running.stopped.set())
            self._thread.join(LOOP_STOP_SECONDS)

    def _call_soon(self, function: Callable[[_RunningLoop], object]) -> None:
        self._ready.wait()
        running = self._running
        if running is not None and not running.loop.is_closed():
            running.loop.call_soon_threadsafe(function, running)

    def _run(self) -> None:
        import asyncio

        with asyncio.Runner() as runner:
            running = _RunningLoop(runner.get_loop(), asyncio.Event(), self._make_handlers)
            self._running = running
            self._ready.set()
            runner.run(running.until_stopped())


class _RunningLoop:
    """The state that exists only while the loop runs. Used only in its thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stopped: asyncio.Event,
        make_handlers: Callable[[], Handlers],
    ) -> None:
        self.loop = loop
        self.stopped = stopped
        self._make_handlers = make_handlers
        self.tasks: dict[object, asyncio.Task[Any]] = {}
        self._handlers: asyncio.Task[Handlers] = loop.create_task(self._load_handlers())

    async def _load_handlers(self) -> Handlers:
        return self._make_handlers()

    async def until_stopped(self) -> None:
        import asyncio

        await self.stopped.wait()
        self.cancel_all()
        await asyncio.gather(*self.tasks.values(), self._handlers, return_exceptions=True)
        if self._handlers.exception() is None:
            await self._handlers.result().aclose()

    def begin(self, call_id: object, work: Work, on_end: OnEnd) -> None:
        task = self.loop.create_task(self._run_work(work))
        self.tasks[call_id] = task
        task.add_done_callback(lambda done: self._end(call_id, done, on_end))

    def cancel(self, call_id: Id) -> None:
        task = self.tasks.get(call_id)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        for task in self.tasks.values():
            task.cancel()

    async def _run_work(self, work: Work) -> Any:
        import asyncio

        # If the handlers could not be created, every request fails with that error.
        return await work(await asyncio.shield(self._handlers))

    def _end(self, call_id: object, task: asyncio.Task[Any], on_end: OnEnd) -> None:
        import asyncio

        self.tasks.pop(call_id, None)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        on_end(None if error else task.result(), error)
