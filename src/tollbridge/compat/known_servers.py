"""Shipped profiles: the quirks of known servers, in `data/*.toml`, and how these servers are recognized."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tollbridge.types.quirks import Quirks
from tollbridge.types.urls import is_loopback


class Recognition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server is recognized by; one match is enough."""

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()  # they only count if the server is on this machine
    headers: Mapping[str, str] = {}  # of responses, each with the start of its value
    owners: tuple[str, ...] = ()  # values of `owned_by` in the model list


class KnownServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shipped profile."""

    name: str
    recognized_by: Recognition
    quirks: Quirks = Quirks()


@cache
def load_known_servers() -> tuple[KnownServer, ...]:
    """Return the shipped profiles, in the order of their file names."""
    paths = sorted(Path(__file__).with_name("data").glob("*.toml"))
    return tuple(msgspec.toml.decode(path.read_bytes(), type=KnownServer) for path in paths)


def known_quirks(name: str) -> Quirks:
    """Return the quirks of a known server by name, for servers that Tollbridge starts itself."""
    return next(server.quirks for server in load_known_servers() if server.name == name)


def recognize_server(
    base_url: str, headers: Mapping[str, str] | None = None, owners: Collection[str] = ()
) -> KnownServer | None:
    """Return the known server at a base URL, or `None`.

    Response headers and model owners take precedence over the host and the port.
    """
    servers = load_known_servers()
    headers = headers or {}
    by_response = [each for each in servers if _matches_response(each.recognized_by, headers, owners)]
    by_address = [each for each in servers if _matches_address(each.recognized_by, base_url)]
    return next(iter([*by_response, *by_address]), None)


def _matches_response(rules: Recognition, headers: Mapping[str, str], owners: Collection[str]) -> bool:
    if any(owner in owners for owner in rules.owners):
        return True
    return any(name in headers and headers[name].startswith(prefix) for name, prefix in rules.headers.items())


def _matches_address(rules: Recognition, base_url: str) -> bool:
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    return host in rules.hosts or (port in rules.ports and is_loopback(host))
