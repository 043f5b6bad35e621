"""A real model of llama.cpp behind `tollbridge serve` answers callers of all three protocols."""

from __future__ import annotations

from typing import Any

import pytest
from tests.frontends.http.servers import local_server

from tollbridge.local.process import LocalModel
from tollbridge.protocols import Backend

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
QUESTION = {"role": "user", "content": "Say hello."}


def read_answer(path: str, body: dict[str, Any]) -> tuple[str, int]:
    """Return the text and the output tokens of an answer."""
    match path:
        case "responses":
            return body["output"][-1]["content"][0]["text"], body["usage"]["output_tokens"]
        case "chat/completions":
            return body["choices"][0]["message"]["content"], body["usage"]["completion_tokens"]
        case _:
            return body["content"][0]["text"], body["usage"]["output_tokens"]


@pytest.mark.parametrize("backend", ["openresponses", "chat-completions", "anthropic-messages"])
async def test_every_protocol_gets_an_answer(backend: Backend) -> None:
    async with LocalModel(context=1024) as local, local_server(local.url, backend, api_key=None) as server:
        for path, fields in (
            ("responses", {"input": [QUESTION], "max_output_tokens": 16}),
            ("chat/completions", {"messages": [QUESTION], "max_tokens": 16}),
            ("messages", {"messages": [QUESTION], "max_tokens": 16}),
        ):
            body = {"model": local.model_id, **fields}
            async with server.http.post(f"{server.url}/v1/{path}", json=body) as response:
                assert response.status == 200, await response.text()
                text, tokens = read_answer(path, await response.json())
            assert text.strip()
            assert 0 < tokens <= 16
        records = server.engine.usage.records
        assert [record.outcome for record in records] == ["completed"] * 3
