"""The sidecar's event loop, in a thread of its own, and the supervision of that loop.

`Heartbeat` measures how late the loop is, for `status`. `Watchdog` ends the process when the loop is frozen:
an editor starts it again, but cannot stop a request of a process that does not react.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tollbridge.frontends.stdio.errors import log
from tollbridge.protocols.jsonrpc import Id

if TYPE_CHECKING:
    import asyncio

    from tollbridge.frontends.stdio.handlers import Handlers

# Seconds to wait for the loop to end.
LOOP_STOP_SECONDS = 2.0
# Seconds between two heartbeats: while requests are running, and otherwise.
BUSY_INTERVAL, IDLE_INTERVAL = 0.1, 2.0
# The period of which the longest lag is kept, in seconds.
LAG_PERIOD = 60
# A loop without a heartbeat for so many seconds is frozen.
FREEZE_SECONDS = 20.0
EXIT_FROZEN = 3
# Sockets that a process should be able to open; some systems allow 256 by default.
OPEN_FILES = 4096

Work = Callable[["Handlers"], Coroutine[Any, Any, Any]]
# Called with the result or the exception; a cancelled request ends with a CancelledError.
OnEnd = Callable[[Any, BaseException | None], object]


class Heartbeat:
    """Measures how much later than planned the event loop runs a task.

    The properties can be read in any thread, also while the loop is blocked.
    """

    def __init__(self) -> None:
        self.count = 0
        self._due: float | None = None
        self._lag = 0.0
        self._longest = [
            (-LAG_PERIOD, 0.0)
        ] * LAG_PERIOD  # per second: the time in seconds, and the longest lag in it

    @property
    def lag(self) -> float:
        """How late the last heartbeat was, or the next one is by now, in seconds."""
        overdue = 0.0 if self._due is None else time.monotonic() - self._due
        return max(self._lag, overdue)

    @property
    def longest_lag(self) -> float:
        """The longest lag of the last minute, in seconds."""
        oldest = int(time.monotonic()) - LAG_PERIOD
        return max([self.lag, *(lag for second, lag in self._longest.copy() if second > oldest)])

    def plan(self, interval: float) -> None:
        self._due = time.monotonic() + interval

    def beat(self) -> None:
        now = time.monotonic()
        self._lag = 0.0 if self._due is None else max(0.0, now - self._due)
        index = int(now) % LAG_PERIOD
        second, longest = self._longest[index]
        self._longest[index] = int(now), self._lag if second != int(now) else max(self._lag, longest)
        self.count += 1


class Watchdog:
    """Ends the process when the event loop does not run for `FREEZE_SECONDS`.

    There are two kinds of freezing. A call that holds the interpreter's lock lets no Python code run, but it
    uses the processor: the operating system's timer of processor time ends the process, after `faulthandler`
    has written where each thread is. A loop that waits for something leaves other threads running: one of
    them calls `check`. Neither counts the time during which the process or the machine is suspended.
    """

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._seen = 0
        self._missed = 0.0

    def arm(self) -> None:
        """Start the timer, or restart it after a heartbeat."""
        import faulthandler
        import signal

        if sys.platform == "win32":
            faulthandler.dump_traceback_later(FREEZE_SECONDS, exit=True, file=2)
            return
        if not self._heartbeat.count:
            faulthandler.register(signal.SIGPROF, file=2, all_threads=True, chain=True)  # chain: and end
        signal.setitimer(signal.ITIMER_PROF, FREEZE_SECONDS)

    def disarm(self) -> None:
        import faulthandler
        import signal

        if sys.platform == "win32":
            faulthandler.cancel_dump_traceback_later()
        else:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def check(self, seconds: float) -> None:
        """Count the time without a heartbeat. Called every few `seconds`, not in the loop's thread."""
        count = self._heartbeat.count
        self._missed = self._missed + seconds if count and count == self._seen else 0.0
        self._seen = count
        if self._missed > FREEZE_SECONDS:
            import faulthandler

            log("error", f"The event loop has not reacted for {FREEZE_SECONDS:g} s. The process ends.")
            faulthandler.dump_traceback(file=2, all_threads=True)
            os._exit(EXIT_FROZEN)


class EventLoopThread:
    """Runs requests in an event loop. The methods are called from other threads.

    The thread is started after `initialize` was answered: importing what the loop needs takes longer than
    answering it and every token count.

    Args:
        make_handlers: Creates the handlers, in the loop's thread.
    """

    def __init__(self, make_handlers: Callable[[], Handlers]) -> None:
        self.heartbeat = Heartbeat()
        self.watchdog = Watchdog(self.heartbeat)
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

        _allow_many_connections()
        with asyncio.Runner() as runner:
            running = _RunningLoop(runner.get_loop(), asyncio.Event(), asyncio.Lock(), self._make_handlers)
            self._running = running
            self._ready.set()
            runner.run(running.until_stopped(self._supervise(running)))

    async def _supervise(self, running: _RunningLoop) -> None:
        """Let the heart beat as soon as the handlers are loaded, which can take long."""
        import asyncio

        await asyncio.wait([running.handlers])
        try:
            while True:
                self.watchdog.arm()
                interval = BUSY_INTERVAL if running.tasks else IDLE_INTERVAL
                self.heartbeat.plan(interval)
                await asyncio.sleep(interval)
                self.heartbeat.beat()
        finally:
            self.watchdog.disarm()


class _RunningLoop:
    """The state that exists only while the loop runs. Used only in its thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stopped: asyncio.Event,
        beginning: asyncio.Lock,
        make_handlers: Callable[[], Handlers],
    ) -> None:
        self.loop = loop
        self.stopped = stopped
        self._beginning = beginning
        self._make_handlers = make_handlers
        self.tasks: dict[object, asyncio.Task[Any]] = {}
        self.handlers: asyncio.Task[Handlers] = loop.create_task(self._load_handlers())

    async def _load_handlers(self) -> Handlers:
        return self._make_handlers()

    async def until_stopped(self, supervision: Coroutine[Any, Any, None]) -> None:
        import asyncio

        supervising = self.loop.create_task(supervision)
        await self.stopped.wait()
        self.cancel_all()
        await asyncio.gather(*self.tasks.values(), self.handlers, return_exceptions=True)
        if self.handlers.exception() is None:
            await self.handlers.result().aclose()
        supervising.cancel()
        await asyncio.wait([supervising])

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
        handlers = await asyncio.shield(self.handlers)
        # Preparing a request takes milliseconds. Requests that arrive together begin in different iterations
        # of the loop, so that a cancellation is handled between them.
        async with self._beginning:
            await asyncio.sleep(0)
        return await work(handlers)

    def _end(self, call_id: object, task: asyncio.Task[Any], on_end: OnEnd) -> None:
        import asyncio

        self.tasks.pop(call_id, None)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        on_end(None if error else task.result(), error)


def _allow_many_connections() -> None:
    """Raise the process's limit of open files, within what the system allows."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
        if soft < limit:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
