"""The callers that the server answers: their protocols, and how they name a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tollbridge.protocols.anthropic_messages.caller import CALLER as MESSAGES
from tollbridge.protocols.caller import Caller
from tollbridge.protocols.chat_completions.caller import CALLER as CHAT_COMPLETIONS
from tollbridge.protocols.openresponses.caller import CALLER as RESPONSES

# The first one is the protocol of a request that shows none.
CALLERS: tuple[Caller, ...] = (RESPONSES, CHAT_COMPLETIONS, MESSAGES)


def find_caller(path: str, headers: Mapping[str, str]) -> Caller:
    """Return the protocol of a request, for errors and model lists: by its path, or else by its headers."""
    path = path.removeprefix("/v1")
    by_path = (caller for caller in CALLERS if path.startswith(caller.path))
    by_header = (caller for caller in CALLERS if caller.header is not None and caller.header in headers)
    return next(by_path, None) or next(by_header, CALLERS[0])


# Where agents say which conversation a request belongs to: Codex, Claude Code, OpenCode and others.
_SESSION_HEADERS = (
    *("session_id", "session-id", "conversation_id", "x-claude-code-session-id"),
    *("x-session-affinity", "x-session-id"),
)
_SESSION_MARK = "_session_"  # in the user id of older versions of Claude Code
_ID_LIMIT = 200  # characters


def find_conversation(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return the id of the conversation that a request belongs to; `None` if the caller does not say.

    Args:
        body: The body, or only its fields `prompt_cache_key` and `metadata`.
        headers: The headers.
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
