"""The limits of the local server: sizes, seconds and counts."""

from __future__ import annotations

import msgspec


class ServerLimits(msgspec.Struct, frozen=True):
    """The limits of the local server, with the reason for each.

    Attributes:
        body_bytes: Of a request body or a message of a WebSocket: a conversation with pictures and files.
        shutdown_seconds: For running answers to finish after the server was asked to stop.
        recheck_seconds: For which the account and what is known about its models are not read again.
        models: Models of which is remembered whether they are forwarded, and omissions that were logged.
        name_characters: Of the name of a calling program, which is stored with its requests.
        reasoning_bytes: Of the reasoning of recent answers, which callers do not send back.
        socket_messages: Messages of a WebSocket that are read while a response is sent. Only reading shows
            that the caller has disconnected.
        socket_conversations: Conversations of one WebSocket that can be continued; the oldest are dropped.
        socket_heartbeat: Seconds between two pings, which detect that the caller of a WebSocket is gone.
    """

    body_bytes: int = 128 * 1024 * 1024
    shutdown_seconds: float = 2.0
    recheck_seconds: float = 2.0
    models: int = 1000
    name_characters: int = 64
    reasoning_bytes: int = 32 * 1024 * 1024
    socket_messages: int = 16
    socket_conversations: int = 16
    socket_heartbeat: float = 30.0


LIMITS = ServerLimits()
