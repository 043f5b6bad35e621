"""Use the engine in commands that send no request: what it has stored about usage, budgets and servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tollbridge.config.schema import Settings
from tollbridge.engine import Engine

T = TypeVar("T")


def use_engine(function: Callable[[Engine], Awaitable[T]], settings: Settings | None = None) -> T:
    """Return the result of a function that is called with an engine, which is closed afterwards."""

    async def run() -> T:
        async with Engine.open(settings) as engine:
            return await function(engine)

    return asyncio.run(run())
