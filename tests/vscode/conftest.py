"""A real VS Code is needed here. Where it cannot be had the tests are skipped, loudly, and never on CI."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.vscode.window import CHROMIUM
from workshop import vsix

MISSING = "no chromium here (on Debian: apt-get install chromium): the tests in a real VS Code were NOT run"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
            # One VS Code at a time: two on two cores wait for each other.
            item.add_marker(pytest.mark.xdist_group("vscode"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def browser() -> None:
    if CHROMIUM is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@pytest.fixture(scope="session")
def packed() -> Path:
    """The extension as people install it, with what this Python needs inside."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    vsix.bundle_script(minify=True)
    vsix.bundle_python([version])
    return vsix.pack(vsix.REPOSITORY / "build" / "tested.vsix")


@pytest.fixture(scope="session")
def built(browser: None) -> Path:
    """The extension, built from its sources, in its folder."""
    vsix.bundle_script()
    vsix.bundle_script(tests=True)
    return vsix.EXTENSION
