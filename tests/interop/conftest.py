"""Fixtures for tests of third-party clients with the embedded gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.interop import node

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder with the npm packages that these tests need."""
    return node.installed()


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway(
        api_key="tb-interop-key", settings=FaultSettings(stall_seconds=0.5, pace=0.002)
    ) as gateway:
        yield gateway
