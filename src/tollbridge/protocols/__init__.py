"""The table of the protocols. A protocol is a folder of this package with a descriptor, and a line here.

The folder of a protocol is imported when the protocol is looked up, and its modules when they are used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the start of the command line needs the names, but not msgspec
    from tollbridge.protocols.protocol import KeyHeader, Protocol

# The protocols of gateways, which accounts name in their setting `backend`, with their folder and descriptor.
# The first is the default.
_GATEWAYS = {
    "openresponses": "openresponses:OPENRESPONSES",
    "ai-sdk": "ai_sdk:AI_SDK",
    "chat-completions": "chat_completions:CHAT_COMPLETIONS",
    "anthropic-messages": "anthropic_messages:ANTHROPIC_MESSAGES",
}
# The protocols of chat endpoints, which choose the model themselves. No account can use them.
_ENDPOINTS = {"ui-stream": "ai_sdk:UI_STREAM"}
_TABLE = {**_GATEWAYS, **_ENDPOINTS}

if TYPE_CHECKING:
    Backend = str
else:
    # A type that settings and messages are validated with.
    Backend = Literal[tuple(_GATEWAYS)]
BACKENDS: tuple[Backend, ...] = tuple(_GATEWAYS)
DEFAULT_BACKEND: Backend = BACKENDS[0]
DEFAULT_ENDPOINT = next(iter(_ENDPOINTS))


def find_protocol(name: str) -> Protocol:
    """Return a protocol by its name in the table."""
    folder, _, descriptor = _TABLE[name].partition(":")
    protocol: Protocol = getattr(import_module(f"tollbridge.protocols.{folder}"), descriptor)
    return protocol


@cache
def all_protocols() -> tuple[Protocol, ...]:
    """Return all protocols. This imports every folder, but not the modules in it."""
    return tuple(find_protocol(name) for name in _TABLE)


def find_by_stream(stream: str) -> Protocol | None:
    """Return the protocol whose responses have a form, by the name that recordings use; `None` if unknown."""
    protocols = all_protocols()
    own = (protocol for protocol in protocols if protocol.response_form == stream)
    return next(own, None) or next((each for each in protocols if stream in each.decoders), None)


def find_by_headers(headers: Collection[str]) -> Protocol | None:
    """Return the protocol of a request by the headers that only its clients send, or `None`."""
    return next((each for each in all_protocols() if any(name in headers for name in each.headers)), None)


@cache
def key_headers() -> tuple[KeyHeader, ...]:
    """Return all headers in which a key is sent."""
    headers = (header for protocol in all_protocols() for header in protocol.auth.values())
    return tuple({header.name: header for header in headers}.values())


@cache
def feature_headers() -> tuple[str, ...]:
    """Return the headers with which callers select features of any protocol."""
    names = (name for protocol in all_protocols() for name in protocol.feature_headers)
    return tuple(dict.fromkeys(names))


def read_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of a caller's request in any protocol; `None` if it has none."""
    by_name = {name.lower(): value for name, value in headers.items()}
    return next((key for header in key_headers() if (key := header.read(by_name))), None)


def auth_choices() -> list[str]:
    """Return the values of the setting `auth`: how a key is sent where the protocol leaves a choice."""
    protocols = all_protocols()
    return list(dict.fromkeys(name for each in protocols if len(each.auth) > 1 for name in each.auth))
