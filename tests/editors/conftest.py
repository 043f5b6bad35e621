"""Without Neovim its tests are skipped; on CI they fail."""

from __future__ import annotations

import os

import pytest
from tests.editors.neovim import NVIM

MISSING = "Neovim is not installed (Debian: apt-get install neovim): its tests were NOT run"


@pytest.fixture(scope="session", autouse=True)
def nvim() -> None:
    if NVIM is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)
