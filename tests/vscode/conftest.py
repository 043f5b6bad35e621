"""Fixtures for tests in a real VS Code. Without Chromium the tests are skipped; on CI they fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.vscode.browser import CHROMIUM
from workshop import vsix

MISSING = "Chromium is not installed (Debian: apt-get install chromium): the VS Code tests were NOT run"


@pytest.fixture(scope="session")
def browser() -> None:
    if CHROMIUM is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@pytest.fixture(scope="session")
def package() -> Path:
    """The extension package, with the dependencies for the running Python version."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    vsix.bundle_script(minify=True)
    vsix.bundle_python([version])
    return vsix.pack(vsix.REPOSITORY / "build" / "tested.vsix")


@pytest.fixture(scope="session")
def extension_folder(browser: None) -> Path:
    """The folder of the extension, with its script and its host tests bundled."""
    vsix.bundle_script()
    vsix.bundle_script(tests=True)
    return vsix.EXTENSION
