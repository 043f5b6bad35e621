"""Setup for all tests: separate folders, Ctrl-C, order and reruns."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from tests.apart import FOLDER, PLACES

os.environ.update(PLACES)

# A process that a shell starts in the background ignores Ctrl-C, and so would the programs started by tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The slowest tests run first. In a run of all tests the first worker gets the first eighth of them, and with
# it all of these: there is one VS Code and one proxy at a time, and they do not delay the end of the run.
# They depend on timing, which is unreliable on two busy cores; like the tests marked `timed`, they are rerun
# once.
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
    """Give each test its own data folder, because tests run in any order and must not share learned data."""
    PLACES["TOLLBRIDGE_DATA_DIR"] = os.environ["TOLLBRIDGE_DATA_DIR"] = tempfile.mkdtemp(dir=FOLDER)
