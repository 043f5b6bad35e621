"""What every test may rely on."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from tests.sandbox import DIRECTORY, ENVIRONMENT

os.environ.update(ENVIRONMENT)

# What a shell starts in the background ignores Ctrl-C, and so would the programs that tests press it for.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What installs and waits most comes first. Of a whole run the first worker is given the first eighth at once,
# so all of these are its own: one VS Code at a time, one proxy, and nobody waits for them in the end.
# Whatever they do holds times, on two busy cores: like the tests marked so, they are tried once more.
FIRST = ("vscode", "interop/litellm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = [Path(__file__).parent / name for name in FIRST]

    def rank(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(folders) if folder in item.path.parents), len(folders))

    items.sort(key=rank)
    for item in items:
        if item.get_closest_marker("timed") or rank(item) < len(folders):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_runtest_setup() -> None:
    """What one test teaches the ledger, the next must not know: which comes before it is chance."""
    ENVIRONMENT["TOLLBRIDGE_DATA_DIR"] = os.environ["TOLLBRIDGE_DATA_DIR"] = tempfile.mkdtemp(dir=DIRECTORY)
