"""What the log holds: one record a line, and nothing of what was asked or said."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from tests.frontends.stdio.stdio_client import Editor, Refusal
from tests.transport.servers import Handler, serving

from tollbridge.frontends.stdio.errors import log, log_exception

SECRET = "the merger is called Zanzibar"
RECORD = re.compile(r"\[(info|warning|error)\] .+")


def refusing(status: int, body: object) -> Handler:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} No\r\nx-request-id: req_7\r\ncontent-type: application/json\r\n"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request_head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", request_head.lower())
        if length:
            await reader.readexactly(int(length[1]))
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()

    return handle


@pytest.mark.parametrize("code", ["bad_input", f"bad\n[error] forged {'x' * 1000}"])
async def test_the_error_message_of_a_gateway_is_sent_to_the_editor_and_not_logged(code: str) -> None:
    message = f"Invalid prompt: {SECRET}\n[error] forged"
    params = {"model": "m", "messages": [{"role": 1, "content": [{"type": "text", "value": SECRET}]}]}
    refusal = refusing(400, {"error": {"message": message, "code": code}})
    async with serving(refusal) as port, Editor() as editor:
        await editor.initialize()
        with pytest.raises(Refusal, match=SECRET):
            await editor.request("chat", {"account": {"baseUrl": f"http://127.0.0.1:{port}/v1"}, **params})
    assert SECRET not in editor.stderr
    assert "chat: kind invalid_request, status 400, code bad" in editor.stderr
    assert "requestId req_7" in editor.stderr
    for line in editor.stderr.splitlines():
        assert RECORD.fullmatch(line)
        assert not line.startswith("[error] forged")
        assert len(line) < 400


def test_a_record_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    log("info", "a\r\n[error] b\x1b[2J\u2028c\u202ed \U0001f600 é")
    assert capsys.readouterr().err == "[info] a  [error] b [2J c d \U0001f600 é\n"


def test_a_failure_of_ours_is_one_line_that_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        log_exception("chat", error)
    stderr = capsys.readouterr().err
    assert re.fullmatch(r"\[error\] chat: ValueError in test_a_failure\w+ \(.*test_log\.py:\d+\)\n", stderr)
