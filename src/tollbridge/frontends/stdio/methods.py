"""The methods of the sidecar: one table, and the methods that need no engine.

A method is a line in `METHODS`. Everything else about it follows from the line: which thread answers it, how
its parameters are decoded, whether it must have an id, whether it counts as pending in the status, and what
`docs/protocol.md` must say.

The methods of the event loop are called through functions, because `Handlers` is imported after `initialize`
was answered.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tollbridge._version import __version__
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.errors import log_exception
from tollbridge.protocols.jsonrpc import MAX_FRAME_BYTES
from tollbridge.types.errors import RequestError

if TYPE_CHECKING:
    from tollbridge.frontends.stdio.server import Server

SERVER = wire.ServerInfo("tollbridge", __version__)
EXIT_OK, EXIT_WITHOUT_SHUTDOWN = 0, 1


class Method(msgspec.Struct, frozen=True):
    """A method, and the thread that answers it.

    -   `reader`, which reads the messages, answers a method that never waits, in the order of the messages.
    -   `count` answers the methods that count tokens, in the order of the messages.
    -   `loop`, the event loop, answers a method that needs the engine, when its result is ready.

    `run` is called with the server and the parameters, in the event loop with the handlers, the parameters
    and the id of the request. `params` is the type of the parameters, `Raw` for a method that has none: they
    are not decoded.
    """

    thread: Literal["reader", "count", "loop"]
    run: Callable[..., Any]
    params: Any = msgspec.Raw


def initialize(server: Server, params: wire.InitializeParams) -> wire.InitializeResult:
    if server.settings is not None:
        raise RequestError("`initialize` was sent twice.")
    if params.protocol_version != wire.PROTOCOL_VERSION:
        raise RequestError(
            f"The editor uses protocol version {params.protocol_version}, this sidecar version "
            f"{wire.PROTOCOL_VERSION}. Update the older of the two."
        )
    server.settings = params.settings
    server.client_id = params.client.id if params.client else None
    return wire.InitializeResult(wire.PROTOCOL_VERSION, SERVER, MAX_FRAME_BYTES)


def status(server: Server, _: object) -> wire.StatusResult:
    loop, counts, output = server.loop, server.counts, server.output
    return wire.StatusResult(
        server=SERVER,
        protocol_version=wire.PROTOCOL_VERSION,
        python=sys.version.partition(" ")[0],
        process_id=os.getpid(),
        uptime_seconds=round(time.monotonic() - server.started, 3),
        pending=loop.pending,
        turns=output.turns,
        paused_turns=output.paused_turns,
        queued_bytes=server.stdio.pending_bytes,
        lag_seconds=round(loop.heartbeat.lag, 4),
        longest_lag_seconds=round(loop.heartbeat.longest_lag, 4),
        counting=counts.loaded,
        accuracy=tuple(wire.AccuracyInfo.copy_of(accuracy) for accuracy in counts.accuracy()),
    )


def change_settings(server: Server, settings: wire.EditorSettings) -> None:
    server.settings = settings
    server.loop.submit(
        object(),  # an id that no request has: this cannot be cancelled and gets no response
        lambda handlers: handlers.change_settings(settings),
        lambda _, error: log_exception("settings", error) if error else None,
    )


def cancel(server: Server, params: wire.CancelParams) -> None:
    server.loop.cancel(params.id)


def shut_down(server: Server, _: object) -> None:
    server.is_shut_down = True
    server.loop.cancel_all()


def end(server: Server, _: object) -> None:
    server.exit_code = EXIT_OK if server.is_shut_down else EXIT_WITHOUT_SHUTDOWN


def count(server: Server, params: wire.CountParams) -> wire.CountResult:
    return wire.CountResult(server.counts.count(params.model, params.items))


METHODS: dict[str, Method] = {
    "initialize": Method("reader", initialize, wire.InitializeParams),
    "status": Method("reader", status),
    "shutdown": Method("reader", shut_down),
    "exit": Method("reader", end),
    "settings": Method("reader", change_settings, wire.EditorSettings),
    "$/cancelRequest": Method("reader", cancel, wire.CancelParams),
    "count": Method("count", count, wire.CountParams),
    "models": Method("loop", lambda handlers, params, _: handlers.models(params), wire.ModelsParams),
    "checkAccount": Method(
        "loop", lambda handlers, params, _: handlers.check_account(params), wire.CheckAccountParams
    ),
    "chat": Method(
        "loop", lambda handlers, params, call_id: handlers.chats.answer(params, call_id), wire.ChatParams
    ),
    # Without parameters, the usage is that of the last answer's conversation.
    "usage": Method("loop", lambda handlers, params, _: handlers.usage(params), wire.UsageParams | None),
    "usagePage": Method("loop", lambda handlers, _, __: handlers.usage_page()),
    "usageReport": Method(
        "loop", lambda handlers, params, _: handlers.usage_report(params), wire.UsageReportParams
    ),
}
