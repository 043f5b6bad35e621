"""The tests of pure code, which `make quick` runs: they open no socket, start no process and do not sleep.

Code that waits for something is async, and so are its tests. A synchronous test counts as pure unless it has
the marker `io` or is in a folder where everything starts a process. A pure test that does I/O fails, in every
run, so that `make quick` stays quick.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.folders import is_in

NOT_PURE = ("interop", "vscode")
_FORBIDDEN = {
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "socket.bind": "opens a socket",
    "socket.connect": "opens a socket",
    "socket.getaddrinfo": "resolves a host name",
    "subprocess.Popen": "starts a process",
    "time.sleep": "sleeps",
}
_violations: list[str] | None = None  # None while no pure test is running


def is_pure(item: pytest.Item) -> bool:
    return not (
        item.get_closest_marker("asyncio") or item.get_closest_marker("io") or is_in(item.path, NOT_PURE)
    )


def start_watching() -> None:
    """Start to record what a pure test must not do."""
    global _violations
    _violations = []


def stop_watching() -> list[str]:
    """Stop recording, and return what the test did that a pure test must not do."""
    global _violations
    violations, _violations = _violations or [], None
    return violations


def _audit(event: str, _arguments: tuple[Any, ...]) -> None:
    if _violations is not None and event in _FORBIDDEN:
        _violations.append(_FORBIDDEN[event])


sys.addaudithook(_audit)
