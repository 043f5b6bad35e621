"""Fixtures: a running gateway and a plain HTTP client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.testing.client import Client

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway

QUICK = FaultSettings(stall_seconds=0.3, oversized_bytes=200_000, pace=0.002)


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway(settings=QUICK) as gateway:
        yield gateway


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def client(gateway: Gateway, session: aiohttp.ClientSession) -> Client:
    return Client(session, gateway.url)
