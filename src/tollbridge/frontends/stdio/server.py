"""The JSON-RPC server: reads the editor's messages and answers each of them.

Methods that need no waiting are answered in the thread that reads; token counts in a thread of their own, in
the order they were asked; everything else by `Handlers` in the event loop's thread. The imports at the top
are few: `initialize` is answered before the engine is loaded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Coroutine
from threading import Event, Lock, Thread, current_thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tollbridge._version import __version__
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.errors import (
    CANCELLED,
    describe_fault,
    encode_exception,
    log,
    log_exception,
    redirect_logging,
)
from tollbridge.frontends.vscode import wire as vscode
from tollbridge.frontends.vscode.wire import read_parameters
from tollbridge.protocols import jsonrpc
from tollbridge.protocols.jsonrpc import Call, Fault, Id, InvalidMessage
from tollbridge.transport.stdio import Stdio
from tollbridge.types.errors import RequestError

if TYPE_CHECKING:
    import asyncio

    from tollbridge.estimator import HybridTokenEstimator
    from tollbridge.frontends.stdio.handlers import Handlers
    from tollbridge.storage.database import WorkerThread
    from tollbridge.tokens.records import Accuracy


# --- The event loop, in a thread of its own, started after `initialize` was answered ---
#
# Importing what the loop needs takes longer than answering `initialize` and every token count.

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


# --- The server ---

SERVER = wire.ServerInfo("tollbridge", __version__)

EXIT_OK, EXIT_WITHOUT_SHUTDOWN, EXIT_BROKEN_INPUT = 0, 1, 2
# The main thread wakes up this often: a Ctrl-C just before it waits is noticed then.
WAKE_SECONDS = 1.0
# Seconds that the editor has to read the last responses, and the count thread to finish.
STOP_SECONDS = 1.0
COUNT_STOP_SECONDS = 2.0


class TokenCounts:
    """Counts tokens. The estimator is loaded on first use, or earlier in the background."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._estimator: HybridTokenEstimator | None = None

    @property
    def loaded(self) -> bool:
        return self._estimator is not None

    def estimator(self) -> HybridTokenEstimator:
        # An editor caches counts, so nothing is guessed while the estimator loads: the caller waits.
        with self._lock:
            if self._estimator is None:
                from tollbridge.config.paths import database_file
                from tollbridge.estimator import HybridTokenEstimator

                self._estimator = HybridTokenEstimator(database_file())
            return self._estimator

    @property
    def revision(self) -> int | None:
        return None if self._estimator is None else self._estimator.revision

    def accuracy(self) -> list[Accuracy]:
        return [] if self._estimator is None else self._estimator.accuracy()

    def warm(self) -> None:
        self.estimator().warm()

    def count(self, model: str, items: list[str | vscode.Message]) -> list[int]:
        from tollbridge.frontends.vscode.decode import decode_message

        estimator = self.estimator()
        return [
            estimator.estimate_text(model, item)
            if isinstance(item, str)
            else estimator.estimate_message(model, decode_message(item))
            for item in items
        ]

    def close(self) -> None:
        if self._estimator is not None:
            self._estimator.close()


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
            "chat": self._chat,
            "usage": self._usage,
        }

    def serve(self) -> int:
        """Serve until the editor sends `exit` or closes a pipe. Returns the exit code of the program."""
        self._stdio.start(self._on_disconnect)
        self._reading.start()
        while not self._stopping.wait(WAKE_SECONDS):
            pass
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
            self._write(jsonrpc.encode_fault(message.id, message.fault))
            if message.unrecoverable:
                self._exit_code = EXIT_BROKEN_INPUT
            return
        rejection = self._check(message)
        if rejection is not None:
            if message.id is None:  # a notification gets no response
                log("warning", rejection.message)
            else:
                self._write(jsonrpc.encode_fault(message.id, rejection))
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
            from tollbridge.storage.database import WorkerThread

            self._count_thread = WorkerThread("count")
        self._count_thread.submit(lambda: self._answer_count(call))

    def _answer_count(self, call: Call) -> None:
        """Runs in the count thread."""
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
        self._write(response or jsonrpc.encode_fault(call.id, fault or CANCELLED))

    def _write(self, frame: bytes) -> None:
        # The reading thread does not wait for the editor to read: it must notice when the editor leaves.
        self._stdio.write(frame, wait=current_thread() is not self._reading)

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

    def _chat(self, call_id: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.ChatParams)
        token = call_id if params.progress_token is None else params.progress_token

        def report(parts: list[vscode.Part]) -> None:
            progress = wire.ProgressParams(token, {"parts": parts})
            self._write(jsonrpc.encode_notification("$/progress", progress))

        return lambda handlers: handlers.chat(params, report)

    def _usage(self, _: Id, __: msgspec.Raw) -> Work:
        return lambda handlers: handlers.usage()

    def _make_handlers(self) -> Handlers:
        """Load the engine. Runs in the event loop's thread, before the first request needs it."""
        from tollbridge.frontends.stdio.handlers import Handlers

        redirect_logging()
        self._counts.warm()
        settings = self._settings or wire.EditorSettings()
        return Handlers(settings, self._counts.estimator(), self._models_changed)

    def _models_changed(self, base_url: str) -> None:
        self._write(jsonrpc.encode_notification("models/changed", {"baseUrl": base_url}))


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
