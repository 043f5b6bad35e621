"""The half of the sidecar that answers: reads the editor's messages and sees that each gets its answer.

What needs no waiting is answered here and now; counts in a thread of their own, in the order asked; the rest
is the engine's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from threading import Event, Thread, current_thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tollbridge.core.errors import RequestError
from tollbridge.core.version import VERSION
from tollbridge.editors import jsonrpc
from tollbridge.editors.jsonrpc import Bad, Call, Fault, Id
from tollbridge.editors.vscode import wire as vscode
from tollbridge.editors.vscode.parameters import read_parameters
from tollbridge.io.stdio import Stdio
from tollbridge.sidecar import wire
from tollbridge.sidecar.counting import Counting
from tollbridge.sidecar.engine import Engine, Work
from tollbridge.sidecar.faults import CANCELLED, describe, encode_fault
from tollbridge.sidecar.log import log, log_failure, take_over_logging
from tollbridge.sidecar.worker import Worker

if TYPE_CHECKING:
    from tollbridge.sidecar.turns import Turns

SERVER = wire.Server("tollbridge", VERSION)

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
        self._settings: wire.Settings | None = None  # of `initialize`; None before it
        self._shut_down = False
        self._exit_code: int | None = None
        self._counting = Counting()
        self._engine = Engine(self._make_turns)
        self._worker = Worker()
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

    def _initialize(self, raw: msgspec.Raw) -> wire.Initialized:
        params = read_parameters(raw, wire.Initialize)
        if self._settings is not None:
            raise RequestError("`initialize` came twice.")
        if params.protocol_version != wire.PROTOCOL_VERSION:
            raise RequestError(
                f"The editor speaks protocol version {params.protocol_version} and this sidecar "
                f"{wire.PROTOCOL_VERSION}: update the older of the two."
            )
        self._settings = params.settings
        return wire.Initialized(wire.PROTOCOL_VERSION, SERVER, jsonrpc.MAX_FRAME_BYTES)

    def _count(self, raw: msgspec.Raw) -> wire.Counts:
        params = read_parameters(raw, wire.Count)
        return wire.Counts(self._counting.count(params.model, params.items))

    def _status(self, _: msgspec.Raw) -> wire.Status:
        return wire.Status(
            server=SERVER,
            protocol_version=wire.PROTOCOL_VERSION,
            python=sys.version.partition(" ")[0],
            process_id=os.getpid(),
            uptime_seconds=round(time.monotonic() - self._started, 3),
            pending=self._engine.pending,
            counting=self._counting.loaded,
            accuracy=tuple(wire.Accuracy.of(each) for each in self._counting.accuracy()),
        )

    def _change_settings(self, raw: msgspec.Raw) -> None:
        settings = read_parameters(raw, wire.Settings)
        self._settings = settings
        self._engine.submit(
            object(),  # nobody can cancel it, nor is it answered
            lambda turns: turns.change_settings(settings),
            lambda _, error: log_failure("settings", error) if error else None,
        )

    def _cancel(self, raw: msgspec.Raw) -> None:
        self._engine.cancel(read_parameters(raw, wire.Cancel).id)

    def _shutdown(self, _: msgspec.Raw) -> None:
        self._shut_down = True
        self._engine.cancel_all()

    def _exit(self, _: msgspec.Raw) -> None:
        self._exit_code = EXIT_WELL if self._shut_down else EXIT_UNASKED

    # Answered by the engine

    def _models(self, _: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.Models)
        return lambda turns: turns.models(params)

    def _chat(self, call_id: Id, raw: msgspec.Raw) -> Work:
        params = read_parameters(raw, wire.Chat)
        token = call_id if params.progress_token is None else params.progress_token

        def report(parts: list[vscode.Part]) -> None:
            self._write(jsonrpc.encode_notification("$/progress", wire.Progress(token, {"parts": parts})))

        return lambda turns: turns.chat(params, report)

    def _usage(self, _: Id, __: msgspec.Raw) -> Work:
        return lambda turns: turns.usage()

    def _make_turns(self) -> Turns:
        """In the engine's thread, which thereby loads all that the first question will need."""
        from tollbridge.sidecar.turns import Turns

        take_over_logging()
        self._counting.warm()
        return Turns(self._settings or wire.Settings(), self._counting.estimator(), self._models_changed)

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
