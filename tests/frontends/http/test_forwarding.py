"""Requests of callers that speak the gateway's own protocol pass unchanged, byte for byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.canned_server import answering, http
from tests.frontends.http.servers import local_server
from tests.storage.stored import read_reports, read_rows

from tollbridge.forward import ForwardedTurn
from tollbridge.protocols.detect import GuardedDecoder, decoder_for
from tollbridge.request_context import ForwardedBody, RequestContext
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.sqlite import SqliteUsage
from tollbridge.testing.server import Gateway
from tollbridge.transport.files import database_file
from tollbridge.types.events import Event, Finished, TextDelta, Usage, split_failure

# With spaces, an unknown field and an escaped character: a decoder that encodes again would change them.
BODY = b'{ "model":"tollbridge/demo",  "input":"Say \\u0068i", "vendor_field": [1.0, 2e3], "stream": true }'
STREAMS = sorted((Path(__file__).parents[2] / "recordings" / "openresponses").glob("*.sse"))


def test_there_are_recordings() -> None:
    assert len(STREAMS) > 10


async def test_the_gateway_receives_the_bytes_of_the_caller() -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            await response.read()
        [received] = gateway.requests
        assert response.status == 200
        assert received.raw == BODY


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
async def test_the_caller_receives_the_bytes_of_the_gateway(path: Path) -> None:
    stream = path.read_bytes()
    canned = http(200, stream, {"content-type": "text/event-stream", "x-request-id": "req_1"})
    async with answering(canned) as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            assert await response.read() == stream
        assert response.headers["x-request-id"] == "req_1"


async def test_the_usage_of_a_forwarded_request_is_recorded() -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            text = await response.text()
        [record] = server.engine.usage.records
        assert record.outcome == "completed"
        assert record.model == "tollbridge/demo"
        assert record.usage is not None
        assert f'"input_tokens":{record.usage.input_tokens},' in text
        assert server.engine.usage.total() == record.usage


async def test_the_row_of_a_running_request_is_written_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[UsageRow] = []
    async with Gateway(scenario="stall") as gateway, local_server(gateway.url) as server:
        monkeypatch.setattr(server.engine.usage, "begin", rows.append)
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            await response.content.readany()
            for _ in range(500):
                if rows:
                    break
                await asyncio.sleep(0.01)
            assert [(row.outcome, row.model) for row in rows] == [("running", "tollbridge/demo")]
            response.close()


async def test_a_short_request_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[UsageRow] = []
    monkeypatch.setattr("tollbridge.forward.ROW_DELAY", 60.0)
    async with Gateway() as gateway, local_server(gateway.url) as server:
        monkeypatch.setattr(server.engine.usage, "begin", rows.append)
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            await response.read()
        assert [record.outcome for record in server.engine.usage.records] == ["completed"]
    assert rows == []


async def test_requests_that_end_together_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("tollbridge.forward.ROW_DELAY", 3600.0)
    monkeypatch.setattr("tollbridge.lifecycle.WRITE_DELAY", 3600.0)
    writes: list[int] = []
    put = SqliteUsage._write_rows

    def note(table: SqliteUsage, rows: Sequence[UsageRow]) -> None:
        writes.append(len(rows))
        put(table, rows)

    monkeypatch.setattr(SqliteUsage, "_write_rows", note)
    async with Gateway() as gateway, local_server(gateway.url, persistent=True) as server:
        for _ in range(10):
            async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
                await response.read()
        assert len(server.engine.usage.records) == 10
    assert writes == [10]  # when the engine was closed
    assert [row.outcome for row in read_rows(database_file())] == ["completed"] * 10
    assert read_reports(database_file())


class StreamInPieces:
    """A response whose body arrives in small pieces, as a model generates it."""

    status, error = 200, None
    headers: ClassVar = {"content-type": "text/event-stream"}

    def __init__(self, body: bytes, size: int) -> None:
        self.pieces = [body[start : start + size] for start in range(0, len(body), size)]

    async def chunks(self) -> AsyncGenerator[bytes]:
        for piece in self.pieces:
            yield piece


class ClientOfOneResponse:
    base_url = "http://here/v1"
    protocol = "openresponses"

    def __init__(self, response: StreamInPieces) -> None:
        self.response = response

    @asynccontextmanager
    async def forward(self, *_: Any, **__: Any) -> AsyncIterator[StreamInPieces]:
        yield self.response


@pytest.mark.parametrize("is_read", [True, False], ids=["complete", "left"])
async def test_a_stream_is_decoded_in_larger_pieces_than_it_arrives_in(
    is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = max(STREAMS, key=lambda path: path.stat().st_size).read_bytes()
    response = StreamInPieces(stream, 100)
    whole = decoder_for("openresponses", 200, response.headers)
    expected, failure = split_failure([*whole.feed(stream), *whole.close()])
    assert failure is None
    fed: list[bytes] = []
    feed = GuardedDecoder.feed

    def note(decoder: GuardedDecoder, data: bytes) -> list[Event]:
        fed.append(data)
        return feed(decoder, data)

    monkeypatch.setattr(GuardedDecoder, "feed", note)
    client: Any = ClientOfOneResponse(response)
    body = ForwardedBody("m", "/responses", b"{}")
    passed: list[bytes] = []
    async with ForwardedTurn(body, client, RequestContext(client=client, model="m")) as forwarded:
        async for chunk in forwarded.chunks():
            passed.append(chunk)
            if not is_read and len(passed) == len(response.pieces) - 1:
                break
    # One by one until the first event, then all at once.
    assert len(fed) < len(passed) / 3
    if is_read:
        assert b"".join(passed) == b"".join(fed) == stream
        assert forwarded.result.outcome == "completed"
        assert forwarded.result.text == "".join(
            event.text for event in expected if isinstance(event, TextDelta)
        )
        assert forwarded.result.finished == next(event for event in expected if isinstance(event, Finished))
    else:
        # The caller has gone while the last piece was sent to it. The earlier ones are accounted for.
        assert b"".join(fed) == b"".join(passed[:-1])
        assert forwarded.result.outcome == "cancelled"


@pytest.mark.parametrize(
    ("fields", "headers", "conversation"),
    [
        (b'"prompt_cache_key": "codex-1"', {"session_id": "other"}, "codex-1"),
        (b'"x": 1', {"session_id": "codex-2"}, "codex-2"),
        (b'"metadata": {"user_id": "user_1_account__session_0a1b"}', {}, "0a1b"),
        (b'"metadata": {"user_id": "{\\"session_id\\":\\"claude-3\\"}"}', {}, "claude-3"),
        (b'"metadata": {"user_id": "{"}, "prompt_cache_key": 7', {}, None),
        (b'"metadata": []', {"x-session-affinity": "opencode-4"}, "opencode-4"),
        (b'"x": 1', {}, None),
    ],
)
async def test_the_conversation_is_what_the_caller_says(
    fields: bytes, headers: dict[str, str], conversation: str | None
) -> None:
    body = b"{%b, %b" % (fields, BODY.removeprefix(b"{"))
    async with Gateway() as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=body, headers=headers) as response:
            await response.read()
        assert gateway.requests[0].raw == body
        assert server.engine.usage.records[-1].conversation == conversation


async def test_the_key_of_the_caller_is_not_sent_to_the_gateway() -> None:
    headers = {"authorization": "Bearer caller-key", "x-api-key": "caller-key", "openai-beta": "responses=v1"}
    async with Gateway() as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=BODY, headers=headers) as response:
            await response.read()
        [received] = gateway.requests
        assert received.bearer == "key-of-the-gateway"
        assert "x-api-key" not in received.headers
        assert received.headers["openai-beta"] == "responses=v1"


async def test_an_error_of_the_gateway_passes_unchanged() -> None:
    body = b'{"error": {"message": "No such model.", "code": "model_not_found", "vendor": 1}}'
    canned = http(404, body, {"content-type": "application/json"})
    async with answering(canned) as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            assert response.status == 404
            assert await response.read() == body
        [record] = server.engine.usage.records
        assert (record.outcome, record.error, record.usage) == ("failed", "not_found", Usage())


async def test_a_transient_error_is_retried_before_the_first_byte() -> None:
    stream = STREAMS[0].read_bytes()
    busy = http(503, b"{}", {"retry-after": "0"})
    answer = http(200, stream, {"content-type": "text/event-stream"})
    async with answering(busy, answer) as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            assert await response.read() == stream
        assert len(gateway.heads) == 2


async def test_a_caller_that_disconnects_stops_the_request_at_the_gateway() -> None:
    async with Gateway(scenario="stall") as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            await response.content.readany()
            started = time.monotonic()
            response.close()
        await gateway.wait_for_disconnect(5.0)
        assert time.monotonic() - started < 1
        for _ in range(100):
            if server.engine.usage.records:
                break
            await asyncio.sleep(0.01)
        assert server.engine.usage.records[0].outcome == "cancelled"


async def test_a_stream_that_breaks_off_breaks_off_for_the_caller() -> None:
    async with Gateway(scenario="disconnect") as gateway, local_server(gateway.url) as server:
        async with server.http.post(f"{server.url}/v1/responses", data=BODY) as response:
            with pytest.raises(Exception, match=r"payload is not completed|Connection"):
                await response.read()
        assert server.engine.usage.records[0].outcome == "failed"


async def test_counting_does_not_record_a_request() -> None:
    async with Gateway() as gateway, local_server(gateway.url) as server:
        body = {"model": "tollbridge/demo", "input": "What is a bridge?"}
        async with server.http.post(f"{server.url}/v1/responses/input_tokens", json=body) as response:
            answer = await response.json()
        assert answer["object"] == "response.input_tokens"
        assert 3 < answer["input_tokens"] < 30
        assert server.engine.usage.total() == Usage()


async def test_tokens_are_estimated_if_the_gateway_does_not_count() -> None:
    body = {"model": "tollbridge/demo", "input": "What is a bridge?"}
    async with Gateway(scenario="no-input-tokens") as gateway, local_server(gateway.url) as server:
        for _ in range(2):
            async with server.http.post(f"{server.url}/v1/responses/input_tokens", json=body) as response:
                assert 3 < (await response.json())["input_tokens"] < 30
        assert len(gateway.requests) == 1  # a gateway that does not count is not asked again
