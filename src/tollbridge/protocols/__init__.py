"""The table of the protocols. A protocol is a folder of this package with a descriptor, and a line here.

The folder of a protocol is imported when the protocol is looked up, and its modules when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tollbridge.protocols.protocol import Lazy, Protocol

# The protocols of gateways, which accounts name in their setting `backend`. The first is the default.
_GATEWAYS = {
    "openresponses": Lazy("tollbridge.protocols.openresponses:OPENRESPONSES"),
    "ai-sdk": Lazy("tollbridge.protocols.ai_sdk:AI_SDK"),
    "chat-completions": Lazy("tollbridge.protocols.chat_completions:CHAT_COMPLETIONS"),
    "anthropic-messages": Lazy("tollbridge.protocols.anthropic_messages:ANTHROPIC_MESSAGES"),
}
# The protocols of chat endpoints, which choose the model themselves. No account can use them.
_ENDPOINTS = {"ui-stream": Lazy("tollbridge.protocols.ai_sdk:UI_STREAM")}
_TABLE = {**_GATEWAYS, **_ENDPOINTS}

if TYPE_CHECKING:
    Backend = str
else:
    # A type that settings and messages are validated with.
    Backend = Literal[tuple(_GATEWAYS)]
BACKENDS: tuple[Backend, ...] = tuple(_GATEWAYS)
DEFAULT_BACKEND: Backend = BACKENDS[0]


def find_protocol(name: str) -> Protocol:
    """Return a protocol by its name in the table."""
    protocol: Protocol = _TABLE[name].load()
    return protocol


def all_protocols() -> list[Protocol]:
    """Return all protocols. This imports every folder, but not the modules in it."""
    return [find_protocol(name) for name in _TABLE]


def find_by_stream(stream: str) -> Protocol | None:
    """Return the protocol whose responses have a form, by the name that recordings use; `None` if unknown."""
    protocols = all_protocols()
    own = (protocol for protocol in protocols if protocol.stream == stream)
    return next(own, None) or next((each for each in protocols if stream in each.streams), None)


def key_headers() -> set[str]:
    """Return the names of all headers in which a key is sent."""
    return {header.name for protocol in all_protocols() for header in protocol.auth.values()}


def auth_choices() -> list[str]:
    """Return the values of the setting `auth`: how a key is sent where the protocol leaves a choice."""
    protocols = all_protocols()
    return list(dict.fromkeys(name for each in protocols if len(each.auth) > 1 for name in each.auth))
