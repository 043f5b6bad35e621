"""The half of the sidecar that waits: an event loop in a thread of its own, made once the editor is greeted.

Importing what it needs takes longer than answering `initialize` and every token count.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tollbridge.protocols.jsonrpc import Id

if TYPE_CHECKING:
    import asyncio

    from tollbridge.frontends.stdio.handlers import Handlers


LOOP_STOP_SECONDS = 2.0

Work = Callable[["Handlers"], Coroutine[Any, Any, Any]]
# Told how it ended: the result, or the failure; a cancelled request ends with a CancelledError.
Ended = Callable[[Any, BaseException | None], object]


class EventLoopThread:
    """Called from the thread that reads; everything it starts happens in its own."""

    def __init__(self, make: Callable[[], Handlers]) -> None:
        self._make = make
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._ready = Event()
        self._running: _Running | None = None

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def pending(self) -> int:
        return len(self._running.tasks) if self._running else 0

    def submit(self, call_id: object, work: Work, ended: Ended) -> None:
        """Starts the work; `ended` is called once, in the engine's thread."""
        self._soon(lambda running: running.begin(call_id, work, ended))

    def cancel(self, call_id: Id) -> None:
        """Stops a request; one that has ended, or never was, is left alone."""
        self._soon(lambda running: running.cancel(call_id))

    def cancel_all(self) -> None:
        self._soon(lambda running: running.cancel_all())

    def stop(self) -> None:
        """Cancels what runs, hangs up, and waits for it, though not for ever."""
        if self.started:
            self._soon(lambda running: running.stopped.set())
            self._thread.join(LOOP_STOP_SECONDS)

    def _soon(self, what: Callable[[_Running], object]) -> None:
        self._ready.wait()
        running = self._running
        if running is not None and not running.loop.is_closed():
            running.loop.call_soon_threadsafe(what, running)

    def _run(self) -> None:
        import asyncio

        with asyncio.Runner() as runner:
            running = _Running(runner.get_loop(), asyncio.Event(), self._make)
            self._running = running
            self._ready.set()
            runner.run(running.until_stopped())


class _Running:
    """What exists only while the loop does. Used in its thread alone."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stopped: asyncio.Event, make: Callable[[], Handlers]
    ) -> None:
        self.loop = loop
        self.stopped = stopped
        self._make = make
        self.tasks: dict[object, asyncio.Task[Any]] = {}
        self._turns: asyncio.Task[Handlers] = loop.create_task(self._made())

    async def _made(self) -> Handlers:
        return self._make()

    async def until_stopped(self) -> None:
        import asyncio

        await self.stopped.wait()
        self.cancel_all()
        await asyncio.gather(*self.tasks.values(), self._turns, return_exceptions=True)
        if self._turns.exception() is None:
            await self._turns.result().aclose()

    def begin(self, call_id: object, work: Work, ended: Ended) -> None:
        task = self.loop.create_task(self._work(work))
        self.tasks[call_id] = task
        task.add_done_callback(lambda done: self._end(call_id, done, ended))

    def cancel(self, call_id: Id) -> None:
        task = self.tasks.get(call_id)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        for task in self.tasks.values():
            task.cancel()

    async def _work(self, work: Work) -> Any:
        import asyncio

        # Where it could not be made, every request is told so.
        return await work(await asyncio.shield(self._turns))

    def _end(self, call_id: object, task: asyncio.Task[Any], ended: Ended) -> None:
        import asyncio

        self.tasks.pop(call_id, None)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        ended(None if error else task.result(), error)
