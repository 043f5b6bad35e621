"""The callers that the server answers: their protocols, and how they name a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from tollbridge.protocols import all_protocols, find_by_headers
from tollbridge.protocols.caller import CallerCodec


@cache
def list_codecs() -> tuple[CallerCodec, ...]:
    """Return the protocols that the server answers, in the order of the table."""
    codecs = (protocol.caller_codec for protocol in all_protocols())
    return tuple(codec.load() for codec in codecs if codec is not None)


def find_codec(path: str, headers: Mapping[str, str]) -> CallerCodec:
    """Return the protocol of a request, for errors and model lists: by its path, or else by its headers."""
    path = path.removeprefix("/v1")
    by_path = next((codec for codec in list_codecs() if path.startswith(codec.path)), None)
    if by_path is not None:
        return by_path
    protocol = find_by_headers(headers)
    codec = None if protocol is None else protocol.caller_codec
    return list_codecs()[0] if codec is None else codec.load()


# Where agents say which conversation a request belongs to: Codex, Claude Code, OpenCode and others.
_SESSION_HEADERS = (
    "session_id session-id conversation_id x-claude-code-session-id x-session-affinity x-session-id".split()
)
_SESSION_MARK = "_session_"  # in the user id of older versions of Claude Code
_ID_LIMIT = 200  # characters


def find_conversation(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return the id of the conversation that a request belongs to; `None` if the caller does not say.

    Of the body, only the fields `prompt_cache_key` and `metadata` are read.
    """
    candidates = (
        body.get("prompt_cache_key"),
        *(headers.get(name) for name in _SESSION_HEADERS),
        _find_session(body.get("metadata")),
    )
    return next((name[:_ID_LIMIT] for name in candidates if isinstance(name, str) and name), None)


def _find_session(metadata: object) -> str | None:
    """Return the session in the user id of Claude Code, which is JSON or ends with the session's id."""
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    if not isinstance(user, str):
        return None
    if user.startswith("{"):
        try:
            session = msgspec.json.decode(user, type=dict[str, Any]).get("session_id")
        except (msgspec.MsgspecError, RecursionError):
            return None
        return session if isinstance(session, str) else None
    return user.rpartition(_SESSION_MARK)[2] if _SESSION_MARK in user else None
