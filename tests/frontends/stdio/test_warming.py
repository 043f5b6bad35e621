"""Vocabularies are ready before they are asked for, and only those that will be."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from aiohttp import web
from tests.tokens.samples import request, user

from tollbridge.estimator import HybridTokenEstimator
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.handlers import Handlers
from tollbridge.frontends.stdio.output import Output
from tollbridge.tokens import tokenizers
from tollbridge.transport.stdio import Stdio
from tollbridge.types.events import Usage

LISTED = ("google/gemini-2.5-pro", "deepseek/deepseek-v3", "openai/gpt-5")


async def test_listing_models_loads_the_vocabularies_of_those_used_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TOLLBRIDGE_CATALOG_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizers, "_loaded", {})

    async def models(_: web.Request) -> web.Response:
        return web.json_response(
            {"object": "list", "data": [{"id": name, "object": "model"} for name in LISTED]}
        )

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    estimator = HybridTokenEstimator()
    handlers = Handlers(wire.EditorSettings(), None, estimator, Output(Stdio(0, 1)))
    used = request([user("Hello there, how are you?")])
    estimator.calibrate("google/gemini-2.5-pro", used.messages, Usage(10))
    tokenizers._loaded.clear()
    account = wire.AccountParams(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    assert len((await handlers.models(wire.ModelsParams(account))).models) == len(LISTED)
    for thread in threading.enumerate():
        if thread.name == "warm tokenizers":
            await asyncio.to_thread(thread.join, 30)
    assert set(tokenizers._loaded) == {"gemma4"}
    await handlers.aclose()
    await runner.cleanup()
