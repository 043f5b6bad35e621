"""The JSON-RPC server: reads the editor's messages and answers each of them.

Methods that need no waiting are answered in the thread that reads; token counts in a thread of their own, in
the order they were asked; everything else by `Handlers` in the event loop's thread. The imports at the top
are few: `initialize` is answered before the engine is loaded.

`Heartbeat` measures how late the event loop is, for `status`. `Watchdog` ends the process when the loop is
frozen: an editor starts it again, but cannot stop a request of a process that does not react.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from threading import Event, Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tollbridge._version import __version__
from tollbridge.frontends.stdio.errors import (
    CANCELLED,
    describe_fault,
    encode_exception,
    log,
    log_exception,
    redirect_logging,
)
from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.wire import read_parameters
from tollbridge.protocols import jsonrpc
from tollbridge.protocols.jsonrpc import Call, Fault, Id, InvalidMessage
from tollbridge.transport.stdio import Stdio
from tollbridge.types.errors import RequestError

if TYPE_CHECKING:
    import asyncio

    from tollbridge.estimator import HybridTokenEstimator
    from tollbridge.frontends.stdio.handlers import Handlers
    from tollbridge.storage.store import Store
    from tollbridge.storage.worker import WorkerThread
    from tollbridge.tokens.records import Accuracy

# --- The event loop and its supervision ---

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
        # of the loop, so that a cancellation is handled between them: each holds the lock for one iteration,
        # which `sleep(0)` waits for, and the next one gets the lock after that.
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


# --- The server ---

SERVER = wire.ServerInfo("tollbridge", __version__)

EXIT_OK, EXIT_WITHOUT_SHUTDOWN, EXIT_BROKEN_INPUT = 0, 1, 2
# The main thread wakes up this often: a Ctrl-C just before it waits, and a blocked loop, are noticed then.
WAKE_SECONDS = 1.0
# Seconds that the editor has to read the last responses, and the count thread to finish.
STOP_SECONDS = 1.0
COUNT_STOP_SECONDS = 2.0
# Seconds after which a thread lets another one run; Python's default is 0.005. The loop decodes for a few
# milliseconds at a time: with a longer interval, the threads that read and write would rarely interrupt it.
SWITCH_INTERVAL = 0.0005


class TokenCounts:
    """Counts tokens. The estimator and the store are loaded on first use, or earlier in the background.

    The engine uses the same store. It is opened here and not by the engine, because editors request counts
    before the engine is imported, which takes longer than anything else.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.store: Store | None = None
        self._estimator: HybridTokenEstimator | None = None

    @property
    def loaded(self) -> bool:
        return self._estimator is not None

    def estimator(self) -> HybridTokenEstimator:
        # An editor caches counts, so nothing is guessed while the estimator loads: the caller waits.
        with self._lock:
            if self._estimator is None:
                from tollbridge.estimator import HybridTokenEstimator
                from tollbridge.storage.store import open_store
                from tollbridge.transport.files import database_file

                self.store = open_store(f"sqlite:///{database_file()}")
                self._estimator = HybridTokenEstimator(self.store.tokens)
            return self._estimator

    @property
    def revision(self) -> int | None:
        return None if self._estimator is None else self._estimator.revision

    def accuracy(self) -> list[Accuracy]:
        return [] if self._estimator is None else self._estimator.accuracy()

    def warm(self) -> None:
        self.estimator().warm()

    def count(self, model: str, items: list[str | wire.Message]) -> list[int]:
        from tollbridge.frontends.vscode.codec import decode_message
        from tollbridge.frontends.vscode.images import shorten_images

        estimator = self.estimator()
        return [
            estimator.estimate_text(model, shorten_images(item))
            if isinstance(item, str)
            else estimator.estimate_message(model, decode_message(item))
            for item in items
        ]

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


class Server:
    """Serves one editor. `docs/protocol.md` documents the methods."""

    def __init__(self, stdio: Stdio) -> None:
        self._stdio = stdio
        self._reader = jsonrpc.Reader()
        self._started = time.monotonic()
        self._settings: wire.EditorSettings | None = None  # from `initialize`; None before it
        self._client_id: str | None = None
        self._shut_down = False
        self._exit_code: int | None = None
        self._counts = TokenCounts()
        self._loop = EventLoopThread(self._make_handlers)
        self._count_thread: WorkerThread | None = None
        self._pending: set[Id | None] = set()  # requests that other threads answer
        self._turns = 0  # that have not ended
        self._paused_turns = 0  # of these, those that wait for the editor to read
        self._reading = Thread(target=self._read, name="stdin", daemon=True)
        self._stopping = Event()
        self._immediate: dict[str, Callable[[msgspec.Raw], Any]] = {
            "initialize": self._initialize,
            "status": self._status,
            "shutdown": self._shutdown,
            "exit": self._exit,
            "settings": self._change_settings,
            "$/cancelRequest": self._cancel,
        }
        self._in_count_thread: dict[str, Callable[[msgspec.Raw], Any]] = {"count": self._count}
        self._in_event_loop: dict[str, Callable[[Id, msgspec.Raw], Work]] = {
            "models": self._models,
            "checkAccount": self._check_account,
            "chat": self._chat,
            "usage": self._usage,
            "usagePage": self._usage_page,
            "usageReport": self._usage_report,
        }

    def serve(self) -> int:
        """Serve until the editor sends `exit` or closes a pipe. Returns the exit code of the program."""
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._stdio.start(self._on_disconnect)
        self._reading.start()
        while not self._stopping.wait(WAKE_SECONDS):
            self._loop.watchdog.check(WAKE_SECONDS)
        self._stdio.stop_waiting()
        self._loop.stop()
        if self._count_thread is not None:
            self._count_thread.close(COUNT_STOP_SECONDS)
        self._counts.close()
        self._stdio.close(STOP_SECONDS)
        return EXIT_OK if self._exit_code is None else self._exit_code

    def _on_disconnect(self) -> None:
        log("info", "The editor closed its end of the pipe.")
        self._stopping.set()

    def _read(self) -> None:
        """Read in a thread of its own: a read blocks while the editor sends nothing."""
        try:
            while self._exit_code is None and (chunk := self._stdio.read()):
                for message in self._reader.feed(chunk):
                    self._dispatch(message)
        except BrokenPipeError:
            self._on_disconnect()
        except OSError as error:
            log("error", f"Cannot read from the editor: {error.strerror}.")
        finally:
            self._stopping.set()

    def _dispatch(self, message: Call | InvalidMessage) -> None:
        if isinstance(message, InvalidMessage):
            log("error", message.fault.message)
            self._stdio.write(jsonrpc.encode_fault(message.id, message.fault))
            if message.unrecoverable:
                self._exit_code = EXIT_BROKEN_INPUT
            return
        rejection = self._check(message)
        if rejection is not None:
            if message.id is None:  # a notification gets no response
                log("warning", rejection.message)
            else:
                self._stdio.write(jsonrpc.encode_fault(message.id, rejection))
        elif message.method in self._in_count_thread:
            self._pending.add(message.id)
            self._submit_count(message)
        elif message.method in self._immediate:
            with _ErrorBoundary(self, message) as boundary:
                boundary.result = self._immediate[message.method](message.params)
            if message.method == "initialize" and self._settings is not None and not self._loop.started:
                self._loop.start()  # after the response, which does not need it
        elif message.id is not None:
            self._pending.add(message.id)
            self._submit_work(message, message.id)

    def _check(self, call: Call) -> Fault | None:
        """Return why a message cannot be handled; `None` if it can."""
        tables = (self._immediate, self._in_count_thread, self._in_event_loop)
        if not any(call.method in table for table in tables):
            return Fault(jsonrpc.METHOD_NOT_FOUND, f"Unknown method {call.method!r}.")
        if call.id is None and call.method in self._in_event_loop:
            return Fault(jsonrpc.INVALID_REQUEST, f"{call.method!r} is a request and needs an id.")
        if self._settings is None and call.method not in ("initialize", "exit"):
            return Fault(jsonrpc.NOT_INITIALIZED, f"{call.method!r} was sent before `initialize`.")
        if self._shut_down and call.method != "exit":
            return Fault(jsonrpc.INVALID_REQUEST, f"{call.method!r} was sent after `shutdown`.")
        if call.id is not None and call.id in self._pending:
            return Fault(jsonrpc.INVALID_REQUEST, f"The id {call.id!r} belongs to a pending request.")
        return None

    def _submit_count(self, call: Call) -> None:
        if self._count_thread is None:
            from tollbridge.storage.worker import WorkerThread

            self._count_thread = WorkerThread("count")
        self._count_thread.submit(lambda: self._answer_count(call))

    def _answer_count(self, call: Call) -> None:
        """Runs in the count thread."""
        self._stdio.wait_until_writable()
        try:
            with _ErrorBoundary(self, call) as boundary:
                boundary.result = self._in_count_thread[call.method](call.params)
        except BrokenPipeError:
            self._log_unread(call)

    def _submit_work(self, call: Call, call_id: Id) -> None:
        with _ErrorBoundary(self, call, responds_later=True):
            work = self._in_event_loop[call.method](call_id, call.params)
            self._loop.submit(call_id, work, lambda result, error: self._finish(call, result, error))

    def _finish(self, call: Call, result: Any, error: BaseException | None) -> None:
        """Respond to a request that ended in the event loop. Runs in the loop's thread."""
        if isinstance(error, BrokenPipeError):
            self._log_unread(call)
            return
        fault = None
        if error is not None:
            cancelled = type(error).__name__ == "CancelledError"
            fault = CANCELLED if cancelled else self._make_fault(call, error)
        try:
            self._respond(call, result, fault)
        except BrokenPipeError:
            self._log_unread(call)

    def _log_unread(self, call: Call) -> None:
        log("info", f"{call.method}: the editor closed its end of the pipe.")

    def _make_fault(self, call: Call, error: BaseException) -> Fault:
        # A rejected prompt may have changed the token counts.
        revision = self._counts.revision if call.method == "chat" else None
        fault = encode_exception(error, revision, self._client_id)
        if fault.code == jsonrpc.INTERNAL_ERROR:
            log_exception(call.method, error)
        else:
            log("warning", f"{call.method}: {describe_fault(error, fault)}")
        return fault

    def _respond(self, call: Call, result: Any, fault: Fault | None) -> None:
        if call.id is None:  # a notification gets no response
            return
        self._pending.discard(call.id)
        response = jsonrpc.encode_result(call.id, result) if fault is None else None
        self._stdio.write(response or jsonrpc.encode_fault(call.id, fault or CANCELLED))

    async def _until_writable(self) -> None:
        """Wait while the editor has much to read. A turn that waits here does not read from its gateway."""
        import asyncio

        if not self._stdio.is_full:
            return
        loop = asyncio.get_running_loop()
        self._paused_turns += 1
        try:
            while self._stdio.is_full:
                writable = asyncio.Event()
                self._stdio.when_writable(partial(_call_in_loop, loop, writable.set))
                await writable.wait()
        finally:
            self._paused_turns -= 1

    # --- Methods answered in the reading thread ---

    def _initialize(self, raw: msgspec.Raw) -> wire.InitializeResult:
        params = read_parameters(raw, wire.InitializeParams)
        if self._settings is not None:
            raise RequestError("`initialize` was sent twice.")
        if params.protocol_version != wire.PROTOCOL_VERSION:
            raise RequestError(
                f"The editor uses protocol version {params.protocol_version}, this sidecar version "
                f"{wire.PROTOCOL_VERSION}. Update the older of the two."
            )
        self._settings = params.settings
        self._client_id = params.client.id if params.client else None
        return wire.InitializeResult(wire.PROTOCOL_VERSION, SERVER, jsonrpc.MAX_FRAME_BYTES)

    def _status(self, _: msgspec.Raw) -> wire.StatusResult:
        return wire.StatusResult(
            server=SERVER,
            protocol_version=wire.PROTOCOL_VERSION,
            python=sys.version.partition(" ")[0],
            process_id=os.getpid(),
            uptime_seconds=round(time.monotonic() - self._started, 3),
            pending=self._loop.pending,
            turns=self._turns,
            paused_turns=self._paused_turns,
            queued_bytes=self._stdio.pending_bytes,
            lag_seconds=round(self._loop.heartbeat.lag, 4),
            longest_lag_seconds=round(self._loop.heartbeat.longest_lag, 4),
            counting=self._counts.loaded,
            accuracy=tuple(wire.AccuracyInfo.of(accuracy) for accuracy in self._counts.accuracy()),
        )

    def _change_settings(self, raw: msgspec.Raw) -> None:
        settings = read_parameters(raw, wire.EditorSettings)
        self._settings = settings
        self._loop.submit(
            object(),  # an id that no request has: this cannot be cancelled and gets no response
            lambda handlers: handlers.change_settings(settings),
            lambda _, error: log_exception("settings", error) if error else None,
        )

    def _cancel(self, raw: msgspec.Raw) -> None:
        self._loop.cancel(read_parameters(raw, wire.CancelParams).id)

    def _shutdown(self, _: msgspec.Raw) -> None:
        self._shut_down = True
        self._loop.cancel_all()

    def _exit(self, _: msgspec.Raw) -> None:
        self._exit_code = EXIT_OK if self._shut_down else EXIT_WITHOUT_SHUTDOWN

    # --- Methods answered in the count thread ---

    def _count(self, raw: msgspec.Raw) -> wire.CountResult:
        params = read_parameters(raw, wire.CountParams)
        return wire.CountResult(self._counts.count(params.model, params.items))

    # --- Methods answered in the event loop ---

    def _models(self, _: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.ModelsParams)
        return lambda handlers: handlers.models(params)

    def _check_account(self, _: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.CheckAccountParams)
        return lambda handlers: handlers.check_account(params)

    def _chat(self, call_id: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.ChatParams)
        token = call_id if params.progress_token is None else params.progress_token

        async def report(parts: list[wire.Part]) -> None:
            await self._until_writable()
            progress = wire.ProgressParams(token, {"parts": parts})
            self._stdio.write(jsonrpc.encode_notification("$/progress", progress))

        def report_wait(wait: wire.Wait) -> None:
            if not self._stdio.is_full:  # an editor that does not read needs no news
                self._stdio.write(jsonrpc.encode_notification("$/wait", wire.WaitParams(token, wait)))

        async def chat(handlers: Handlers) -> wire.ChatResult:
            self._turns += 1
            try:
                return await handlers.chat(params, report, report_wait)
            finally:
                self._turns -= 1

        return chat

    def _usage(self, _: Id, raw: msgspec.Raw) -> Work:
        # Clients written for the first release send no parameters.
        params = wire.UsageParams() if bytes(raw) == b"null" else read_parameters(raw, wire.UsageParams)
        return lambda handlers: handlers.usage(params)

    def _usage_page(self, _: Id, __: msgspec.Raw) -> Work:
        return lambda handlers: handlers.usage_page()

    def _usage_report(self, _: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.UsageReportParams)
        return lambda handlers: handlers.usage_report(params)

    def _make_handlers(self) -> Handlers:
        """Load the engine. Runs in the event loop's thread, before the first request needs it."""
        from tollbridge.frontends.stdio.handlers import Handlers
        from tollbridge.transport.loading import declare_own_program

        declare_own_program()  # aiohttp is imported without what the sidecar does not use
        redirect_logging()
        self._counts.warm()
        settings = self._settings or wire.EditorSettings()
        estimator = self._counts.estimator()
        return Handlers(settings, self._counts.store, estimator, self._models_changed)

    def _models_changed(self, base_url: str) -> None:
        self._stdio.write(jsonrpc.encode_notification("models/changed", {"baseUrl": base_url}))


def _call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call a function in an event loop, from another thread, unless the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


class _ErrorBoundary:
    """Turns any exception of a method into the response of its request. Nothing else catches everything."""

    def __init__(self, server: Server, call: Call, *, responds_later: bool = False) -> None:
        self.result: Any = None
        self._server = server
        self._call = call
        self._responds_later = responds_later

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None and self._responds_later:
            return False
        if error is not None and not isinstance(error, Exception):
            return False  # KeyboardInterrupt and similar
        if isinstance(error, BrokenPipeError):
            return False
        fault = None if error is None else self._server._make_fault(self._call, error)
        self._server._respond(self._call, self.result, fault)
        return True
