"""The half of the sidecar that answers: reads the editor's messages and sees that each gets its answer.

What needs no waiting is answered here and now; counts in a thread of their own, in the order asked; the rest
is the engine's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Lock, Thread, current_thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from tollbridge._version import __version__
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.event_loop import EventLoopThread, Work
from tollbridge.frontends.vscode import wire as vscode
from tollbridge.frontends.vscode.wire import NotUtf8, read_parameters
from tollbridge.protocols import jsonrpc
from tollbridge.protocols.jsonrpc import Bad, Call, Fault, Id
from tollbridge.transport.stdio import Stdio
from tollbridge.types.errors import BridgeError, GatewayError, RequestError, StreamError

if TYPE_CHECKING:
    from tollbridge.estimator import HybridTokenEstimator
    from tollbridge.frontends.stdio.handlers import Handlers
    from tollbridge.tokens.records import Accuracy


# SECTION Standard error as the sidecar's log: one line a record, its level first. Never a key, never a prompt.

Level = Literal["info", "warning", "error"]


def log(level: Level, message: str) -> None:
    """Where nobody listens any more, nothing is said."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"[{level}] {_one_line(message)}\n")
            sys.stderr.flush()


def _one_line(message: str) -> str:
    """What others said may hold line breaks, and so forge a record, or steer a terminal."""
    if message.isprintable():
        return message
    return "".join(letter if letter.isprintable() else " " for letter in message)


def log_failure(what: str, error: BaseException) -> None:
    """Where it happened, and not what was said: an exception's message may quote its input."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    where = ", ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames))
    log("error", f"{what}: {type(error).__name__} in {where}")


def take_over_logging() -> None:
    """What the library says by way of `logging` goes the same way."""
    import logging

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            level: Level = "error" if record.levelno >= logging.ERROR else "info"
            log("warning" if record.levelno == logging.WARNING else level, record.getMessage())

    logger = logging.getLogger("tollbridge")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers[:] = [Lines()]


# SECTION Any failure as the answer an editor gets: one function, one table.

# The bridge could not be crossed; `data.kind` says why.
BRIDGE_FAILED = -32001

CODES: dict[type[BridgeError], int] = {RequestError: jsonrpc.INVALID_PARAMS}

CANCELLED = Fault(jsonrpc.REQUEST_CANCELLED, "The request was cancelled.", {"kind": "cancelled"})

# What the log has of a gateway's refusal, and how many characters of each: a gateway chose them.
_FACTS, _FACT_LIMIT = ("kind", "status", "code", "requestId"), 100


def describe(error: BaseException, fault: Fault) -> str:
    """A fault as the log tells it: without what the gateway said, which may quote the prompt."""
    if not isinstance(error, GatewayError | StreamError):
        return fault.message
    facts = fault.data or {}
    return ", ".join(f"{name} {str(facts[name])[:_FACT_LIMIT]}" for name in _FACTS if name in facts)


def encode_fault(error: BaseException, lesson: int | None = None) -> Fault:
    """A failure nobody foresaw gives its name and no more: its message might hold what was asked."""
    if isinstance(error, BridgeError):
        from tollbridge.frontends.vscode.encode import encode_error

        sentence, facts = encode_error(error)
        if lesson is not None:
            facts["lesson"] = lesson
        return Fault(CODES.get(type(error), BRIDGE_FAILED), sentence, facts)
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return Fault(
            jsonrpc.INVALID_PARAMS, f"The parameters do not fit: {error}.", {"kind": "invalid_request"}
        )
    if isinstance(error, NotUtf8):
        return Fault(jsonrpc.PARSE_ERROR, "The parameters are not UTF-8.", {"kind": "invalid_request"})
    name = type(error).__name__
    return Fault(
        jsonrpc.INTERNAL_ERROR,
        f"Tollbridge failed ({name}); its log has the details.",
        {"kind": "internal", "code": name},
    )


# SECTION How many tokens a text or a message has, asked thousands of times a turn.


class TokenCounter:
    """Loads the estimator when it is first needed, or before, in the background."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._estimator: HybridTokenEstimator | None = None

    @property
    def loaded(self) -> bool:
        return self._estimator is not None

    def estimator(self) -> HybridTokenEstimator:
        # A guess made while it loads would be remembered by the editor: whoever asks waits instead.
        with self._lock:
            if self._estimator is None:
                from tollbridge.config.paths import database_file
                from tollbridge.estimator import HybridTokenEstimator

                self._estimator = HybridTokenEstimator(database_file())
            return self._estimator

    @property
    def lesson(self) -> int | None:
        return None if self._estimator is None else self._estimator.lesson

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


# SECTION A thread beside the one that reads, for answers that take a while: what comes meanwhile is heard.

WORKER_STOP_SECONDS = 2.0


class CountThread:
    """Does one thing after the other, in the order given. What it is given may not raise."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def do(self, task: Callable[[], object]) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="worker", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def stop(self) -> None:
        """When all has been done; though not for ever."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(WORKER_STOP_SECONDS)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


# SECTION The half of the sidecar that answers: reads the editor's messages and sees that each gets its answer.
#
# What needs no waiting is answered here and now; counts in a thread of their own, in the order asked; the rest
# is the engine's.

SERVER = wire.ServerInfo("tollbridge", __version__)

EXIT_WELL, EXIT_UNASKED, EXIT_LOST = 0, 1, 2
# How long the last answers may take to be read.
# A Ctrl-C in the moment before the main thread waits is seen when it next looks up.
GLANCE_SECONDS = 1.0
STOP_SECONDS = 1.0


class Server:
    def __init__(self, stdio: Stdio) -> None:
        self._stdio = stdio
        self._reader = jsonrpc.Reader()
        self._started = time.monotonic()
        self._settings: wire.EditorSettings | None = None  # of `initialize`; None before it
        self._shut_down = False
        self._exit_code: int | None = None
        self._counting = TokenCounter()
        self._engine = EventLoopThread(self._make_turns)
        self._worker = CountThread()
        self._under_way: set[Id | None] = set()  # what will be answered later, or in another thread
        self._reading = Thread(target=self._read, name="stdin", daemon=True)
        self._leaving = Event()
        self._answered_here: dict[str, Callable[[msgspec.Raw], Any]] = {
            "initialize": self._initialize,
            "status": self._status,
            "shutdown": self._shutdown,
            "exit": self._exit,
            "settings": self._change_settings,
            "$/cancelRequest": self._cancel,
        }
        self._answered_apart: dict[str, Callable[[msgspec.Raw], Any]] = {"count": self._count}
        self._answered_later: dict[str, Callable[[Id, msgspec.Raw], Work]] = {
            "models": self._models,
            "chat": self._chat,
            "usage": self._usage,
        }

    def serve(self) -> int:
        """Until the editor says `exit` or closes its end, either of them; the program's exit code."""
        self._stdio.start(self._lost)
        self._reading.start()
        while not self._leaving.wait(GLANCE_SECONDS):
            pass
        self._stdio.hurry()
        self._engine.stop()
        self._worker.stop()
        self._counting.close()
        self._stdio.close(STOP_SECONDS)
        return EXIT_WELL if self._exit_code is None else self._exit_code

    def _lost(self) -> None:
        log("info", "the editor no longer reads")
        self._leaving.set()

    def _read(self) -> None:
        """In a thread of its own: it may wait for what never comes, when the editor no longer reads."""
        try:
            while self._exit_code is None and (chunk := self._stdio.read()):
                for found in self._reader.feed(chunk):
                    self._take(found)
        except BrokenPipeError:
            self._lost()
        except OSError as error:
            log("error", f"the editor cannot be heard: {error.strerror}")
        finally:
            self._leaving.set()

    def _take(self, found: Call | Bad) -> None:
        if isinstance(found, Bad):
            log("error", found.fault.message)
            self._write(jsonrpc.encode_fault(found.id, found.fault))
            if found.lost:
                self._exit_code = EXIT_LOST
            return
        refusal = self._refusal(found)
        if refusal is not None:
            if found.id is None:  # nobody else is told
                log("warning", refusal.message)
            else:
                self._write(jsonrpc.encode_fault(found.id, refusal))
        elif found.method in self._answered_apart:
            self._under_way.add(found.id)
            self._worker.do(lambda: self._answer_apart(found))
        elif found.method in self._answered_here:
            with _Edge(self, found) as edge:
                edge.result = self._answered_here[found.method](found.params)
            if found.method == "initialize" and self._settings is not None and not self._engine.started:
                self._engine.start()  # after the greeting, which needs nothing of it
        elif found.id is not None:
            self._under_way.add(found.id)
            self._hand_over(found, found.id)

    def _answer_apart(self, call: Call) -> None:
        """In the worker's thread."""
        try:
            with _Edge(self, call) as edge:
                edge.result = self._answered_apart[call.method](call.params)
        except BrokenPipeError:
            self._unheard(call)

    def _unheard(self, call: Call) -> None:
        """An editor that is gone needs no answer."""
        log("info", f"{call.method}: the editor no longer reads")

    def _refusal(self, call: Call) -> Fault | None:
        tables = (self._answered_here, self._answered_apart, self._answered_later)
        if not any(call.method in table for table in tables):
            return Fault(jsonrpc.METHOD_NOT_FOUND, f"There is no method {call.method!r}.")
        if call.id is None and call.method in self._answered_later:
            return Fault(jsonrpc.INVALID_REQUEST, f"{call.method!r} is a request: it needs an id.")
        if self._settings is None and call.method not in ("initialize", "exit"):
            return Fault(jsonrpc.NOT_INITIALIZED, f"{call.method!r} came before `initialize`.")
        if self._shut_down and call.method != "exit":
            return Fault(jsonrpc.INVALID_REQUEST, f"{call.method!r} came after `shutdown`.")
        if call.id is not None and call.id in self._under_way:
            return Fault(jsonrpc.INVALID_REQUEST, f"The id {call.id!r} is that of a request under way.")
        return None

    def _hand_over(self, call: Call, call_id: Id) -> None:
        with _Edge(self, call, answers_later=True):
            work = self._answered_later[call.method](call_id, call.params)
            self._engine.submit(call_id, work, lambda result, error: self._ended(call, result, error))

    def _ended(self, call: Call, result: Any, error: BaseException | None) -> None:
        """In the engine's thread."""
        if isinstance(error, BrokenPipeError):
            self._unheard(call)
            return
        fault = None
        if error is not None:
            cancelled = type(error).__name__ == "CancelledError"
            fault = CANCELLED if cancelled else self._fault(call, error)
        try:
            self._answer(call, result, fault)
        except BrokenPipeError:
            self._unheard(call)

    def _fault(self, call: Call, error: BaseException) -> Fault:
        # A refusal may have taught something.
        fault = encode_fault(error, self._counting.lesson if call.method == "chat" else None)
        if fault.code == jsonrpc.INTERNAL_ERROR:
            log_failure(call.method, error)
        else:
            log("warning", f"{call.method}: {describe(error, fault)}")
        return fault

    def _answer(self, call: Call, result: Any, fault: Fault | None) -> None:
        if call.id is None:  # a notification gets none
            return
        self._under_way.discard(call.id)
        answer = jsonrpc.encode_result(call.id, result) if fault is None else None
        self._write(answer or jsonrpc.encode_fault(call.id, fault or CANCELLED))

    def _write(self, frame: bytes) -> None:
        # Whoever waited here while it reads would not hear the editor leave.
        self._stdio.write(frame, wait=current_thread() is not self._reading)

    # Answered here

    def _initialize(self, raw: msgspec.Raw) -> wire.InitializeResult:
        params = read_parameters(raw, wire.InitializeParams)
        if self._settings is not None:
            raise RequestError("`initialize` came twice.")
        if params.protocol_version != wire.PROTOCOL_VERSION:
            raise RequestError(
                f"The editor speaks protocol version {params.protocol_version} and this sidecar "
                f"{wire.PROTOCOL_VERSION}: update the older of the two."
            )
        self._settings = params.settings
        return wire.InitializeResult(wire.PROTOCOL_VERSION, SERVER, jsonrpc.MAX_FRAME_BYTES)

    def _count(self, raw: msgspec.Raw) -> wire.CountResult:
        params = read_parameters(raw, wire.CountParams)
        return wire.CountResult(self._counting.count(params.model, params.items))

    def _status(self, _: msgspec.Raw) -> wire.StatusResult:
        return wire.StatusResult(
            server=SERVER,
            protocol_version=wire.PROTOCOL_VERSION,
            python=sys.version.partition(" ")[0],
            process_id=os.getpid(),
            uptime_seconds=round(time.monotonic() - self._started, 3),
            pending=self._engine.pending,
            counting=self._counting.loaded,
            accuracy=tuple(wire.AccuracyInfo.of(each) for each in self._counting.accuracy()),
        )

    def _change_settings(self, raw: msgspec.Raw) -> None:
        settings = read_parameters(raw, wire.EditorSettings)
        self._settings = settings
        self._engine.submit(
            object(),  # nobody can cancel it, nor is it answered
            lambda turns: turns.change_settings(settings),
            lambda _, error: log_failure("settings", error) if error else None,
        )

    def _cancel(self, raw: msgspec.Raw) -> None:
        self._engine.cancel(read_parameters(raw, wire.CancelParams).id)

    def _shutdown(self, _: msgspec.Raw) -> None:
        self._shut_down = True
        self._engine.cancel_all()

    def _exit(self, _: msgspec.Raw) -> None:
        self._exit_code = EXIT_WELL if self._shut_down else EXIT_UNASKED

    # Answered by the engine

    def _models(self, _: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.ModelsParams)
        return lambda turns: turns.models(params)

    def _chat(self, call_id: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.ChatParams)
        token = call_id if params.progress_token is None else params.progress_token

        def report(parts: list[vscode.Part]) -> None:
            self._write(
                jsonrpc.encode_notification("$/progress", wire.ProgressParams(token, {"parts": parts}))
            )

        return lambda turns: turns.chat(params, report)

    def _usage(self, _: Id, __: msgspec.Raw) -> Work:
        return lambda turns: turns.usage()

    def _make_turns(self) -> Handlers:
        """In the engine's thread, which thereby loads all that the first question will need."""
        from tollbridge.frontends.stdio.handlers import Handlers

        take_over_logging()
        self._counting.warm()
        return Handlers(
            self._settings or wire.EditorSettings(), self._counting.estimator(), self._models_changed
        )

    def _models_changed(self, base_url: str) -> None:
        self._write(jsonrpc.encode_notification("models/changed", {"baseUrl": base_url}))


class _Edge:
    """The one place that catches everything: what goes wrong inside becomes the call's answer."""

    def __init__(self, server: Server, call: Call, *, answers_later: bool = False) -> None:
        self.result: Any = None
        self._server = server
        self._call = call
        self._answers_later = answers_later

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None and self._answers_later:
            return False
        if error is not None and not isinstance(error, Exception):
            return False  # KeyboardInterrupt and its kin are not failures
        if isinstance(error, BrokenPipeError):
            return False
        fault = None if error is None else self._server._fault(self._call, error)
        self._server._answer(self._call, self.result, fault)
        return True
