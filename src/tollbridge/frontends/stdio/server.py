"""The JSON-RPC server: reads the editor's messages and answers each of them.

`METHODS` says which thread answers a method: the one that reads, the one that counts tokens, or that of the
event loop. The imports at the top are few: `initialize` is answered before the engine is loaded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.counts import TokenCounts
from tollbridge.frontends.stdio.errors import (
    CANCELLED,
    describe_fault,
    encode_exception,
    log,
    log_exception,
    redirect_logging,
)
from tollbridge.frontends.stdio.event_loop import EventLoopThread
from tollbridge.frontends.stdio.limits import LIMITS
from tollbridge.frontends.stdio.methods import EXIT_OK, METHODS, Method
from tollbridge.frontends.stdio.output import Output
from tollbridge.frontends.stdio.parameters import read_parameters
from tollbridge.protocols import jsonrpc
from tollbridge.protocols.jsonrpc import Call, Fault, Id, InvalidMessage
from tollbridge.transport.loading import declare_own_program
from tollbridge.transport.stdio import Stdio

if TYPE_CHECKING:
    from tollbridge.frontends.stdio.handlers import Handlers

EXIT_BROKEN_INPUT = 2


class Server:
    """Serves one editor. `docs/protocol.md` documents the methods.

    `started` is a time of the monotonic clock. `settings` and `client_id` come from `initialize` and are
    `None` before it; `exit_code` is set when the process is about to end.
    """

    def __init__(self, stdio: Stdio) -> None:
        self.stdio = stdio
        self.output = Output(stdio)
        self.counts = TokenCounts()
        self.loop = EventLoopThread(self._load_handlers)
        self.started = time.monotonic()
        self.settings: wire.EditorSettings | None = None
        self.client_id: str | None = None
        self.is_shut_down = False
        self.exit_code: int | None = None
        self._pending: set[Id | None] = set()  # requests that other threads answer
        self._reader = jsonrpc.Reader()

    def serve(self) -> int:
        """Serve until the editor sends `exit` or closes a pipe. Returns the exit code of the program."""
        sys.setswitchinterval(LIMITS.switch_interval)
        self.stdio.start(self._on_disconnect)
        self._read()
        self.stdio.stop_waiting()
        self.loop.stop()
        self.counts.close()
        self.stdio.close(LIMITS.output_stop_seconds)
        return EXIT_OK if self.exit_code is None else self.exit_code

    def _on_disconnect(self) -> None:
        log("info", "The editor closed its end of the pipe.")
        self.stdio.stop_reading()

    def _read(self) -> None:
        """Take the editor's messages until there are no more, and check that the event loop still runs."""
        checked = time.monotonic()
        try:
            while self.exit_code is None and (chunk := self.stdio.read(LIMITS.wake_seconds)) != b"":
                for message in self._reader.feed(chunk) if chunk else ():
                    self._take(message)
                if time.monotonic() - checked >= LIMITS.wake_seconds:
                    checked = time.monotonic()
                    self.loop.watchdog.check(LIMITS.wake_seconds)
        except BrokenPipeError:
            self._on_disconnect()
        except OSError as error:
            log("error", f"Cannot read from the editor: {error.strerror}.")

    def _take(self, message: Call | InvalidMessage) -> None:
        if isinstance(message, InvalidMessage):
            log("error", message.fault.message)
            self.output.respond_with_fault(message.id, message.fault)
            if message.unrecoverable:
                self.exit_code = EXIT_BROKEN_INPUT
        elif (rejection := self._check(message)) is None:
            self._dispatch(message, METHODS[message.method])
        elif message.id is None:  # a notification gets no response
            log("warning", rejection.message)
        else:
            self.output.respond_with_fault(message.id, rejection)

    def _check(self, call: Call) -> Fault | None:
        """Return why a message cannot be handled; `None` if it can."""
        method = METHODS.get(call.method)
        if method is None:
            return Fault(jsonrpc.METHOD_NOT_FOUND, f"Unknown method {call.method!r}.")
        if call.id is None and method.thread == "loop":
            return Fault(jsonrpc.INVALID_REQUEST, f"{call.method!r} is a request and needs an id.")
        if self.settings is None and call.method not in ("initialize", "exit"):
            return Fault(jsonrpc.NOT_INITIALIZED, f"{call.method!r} was sent before `initialize`.")
        if self.is_shut_down and call.method != "exit":
            return Fault(jsonrpc.INVALID_REQUEST, f"{call.method!r} was sent after `shutdown`.")
        if call.id is not None and call.id in self._pending:
            return Fault(jsonrpc.INVALID_REQUEST, f"The id {call.id!r} belongs to a pending request.")
        return None

    def _dispatch(self, call: Call, method: Method) -> None:
        match method.thread:
            case "reader":
                self._answer(call, method)
                if self.settings is not None and not self.loop.started:
                    self.loop.start()  # after the response to `initialize`, which does not need it
            case "count":
                self._pending.add(call.id)
                self.counts.submit(partial(self._answer_count, call, method))
            case "loop":
                call_id = call.id
                assert call_id is not None  # noqa: S101 - see `_check`
                self._pending.add(call_id)
                with self._answering_errors(call):
                    params = read_parameters(call.params, method.params)
                    finish = partial(self._finish, call)
                    self.loop.submit(call_id, lambda handlers: method.run(handlers, params, call_id), finish)
            case _:
                assert_never(method.thread)

    def _answer(self, call: Call, method: Method) -> None:
        with self._answering_errors(call):
            self._respond(call, method.run(self, read_parameters(call.params, method.params)))

    def _answer_count(self, call: Call, method: Method) -> None:
        """Runs in the count thread."""
        self.stdio.wait_until_writable()
        with self._ignoring_disconnection(call):
            self._answer(call, method)

    def _finish(self, call: Call, result: Any, error: BaseException | None) -> None:
        """Respond to a request that ended in the event loop. Runs in the loop's thread."""
        with self._ignoring_disconnection(call):
            if isinstance(error, BrokenPipeError):
                raise error
            if error is None:
                self._respond(call, result)
            else:
                # By its name: asyncio is not imported before the first turn.
                is_cancelled = type(error).__name__ == "CancelledError"
                self._respond(call, None, CANCELLED if is_cancelled else self._make_fault(call, error))

    def _respond(self, call: Call, result: Any, fault: Fault | None = None) -> None:
        if call.id is None:  # a notification gets no response
            return
        self._pending.discard(call.id)
        if fault is None:
            self.output.respond(call.id, result)
        else:
            self.output.respond_with_fault(call.id, fault)

    @contextmanager
    def _answering_errors(self, call: Call) -> Iterator[None]:
        """Answer any exception of a method as the error of its request. Nothing else catches everything."""
        try:
            yield
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            self._respond(call, None, self._make_fault(call, error))

    @contextmanager
    def _ignoring_disconnection(self, call: Call) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            log("info", f"{call.method}: the editor closed its end of the pipe.")

    def _make_fault(self, call: Call, error: BaseException) -> Fault:
        # A rejected prompt may have changed the token counts.
        revision = self.counts.revision if call.method == "chat" else None
        fault = encode_exception(error, revision, self.client_id)
        if fault.code == jsonrpc.INTERNAL_ERROR:
            log_exception(call.method, error)
        else:
            log("warning", f"{call.method}: {describe_fault(error, fault)}")
        return fault

    async def _load_handlers(self) -> Handlers:
        """Load the engine. Runs in the event loop's thread, before the first request needs it."""
        from tollbridge.frontends.stdio.handlers import Handlers

        declare_own_program()  # aiohttp is imported without what the sidecar does not use
        redirect_logging()
        estimator = self.counts.estimator()
        estimator.warm()
        return Handlers(self.settings or wire.EditorSettings(), self.counts.store, estimator, self.output)
