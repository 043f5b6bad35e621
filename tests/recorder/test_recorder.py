"""Turns with the embedded gateway, recorded and replayed."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.turns import Runner, completed

from tollbridge.answer import Answer
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.connections import open_client
from tollbridge.protocols import BACKENDS
from tollbridge.recorder.files import LIMITS, RecorderLimits
from tollbridge.recorder.recording import (
    FORMAT,
    AnyLine,
    DataLine,
    EndLine,
    PartsLine,
    RecordingStart,
    RequestLine,
    ResponseLine,
    TruncationLine,
    is_recording,
    read_line,
    read_recording,
    write_line,
)
from tollbridge.recorder.replay import diff_parts, replay_recording
from tollbridge.recorder.writer import RecordingWriter
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError, NetworkFailed, RequestError
from tollbridge.types.media import draw_png
from tollbridge.types.messages import ChatRequest, DataPart, Message, Origin, Part, Role, Tool
from tollbridge.types.models import Capabilities
from tollbridge.types.quirks import LearnedQuirks, Quirks
from tollbridge.types.text import write_json

KEY = "tk-0123456789-secret"
ORIGIN = Origin("tollbridge/demo", "http://h/v1")
QUICK = FaultSettings(stall_seconds=0.05, oversized_bytes=200_000, pace=0.001)
ONCE = RetryPolicy(attempts=2, first=0.01)
TOOL = Tool("get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})


def request(text: str = "hello", **fields: Any) -> ChatRequest:
    return ChatRequest(model="tollbridge/demo", messages=(Message(Role.USER, text),), **fields)


async def record(
    client: GatewayClient,
    folder: Path,
    chat_request: ChatRequest,
    *,
    redacted: bool = False,
    limits: RecorderLimits = LIMITS,
) -> tuple[Path, list[Part], BridgeError | None]:
    """Record one turn. Return the file, the parts of the live run, and its error."""
    parts: list[Part] = []
    failure: BridgeError | None = None
    writer = RecordingWriter(folder, chat_request, learned=LearnedQuirks(), redacted=redacted, limits=limits)
    try:
        await Runner(client, observers=[writer]).run(chat_request, parts.extend, api_key=KEY)
    except BridgeError as error:
        failure = error
    return writer._file.path, parts, failure


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_scenario_replays_to_the_same_parts_byte_for_byte(scenario: str, tmp_path: Path) -> None:
    async with (
        Gateway(settings=QUICK, scenario=scenario) as gateway,
        OpenResponsesClient(gateway.url, retries=ONCE) as client,
    ):
        path, live, failure = await record(client, tmp_path, request("Say what you see.", tools=(TOOL,)))
    recording = read_recording(path)
    replay = await replay_recording(recording)
    assert [write_json(part) for part in recording.parts] == [write_json(part) for part in live]
    assert [write_json(part) for part in replay.parts] == [write_json(part) for part in live]
    assert len(replay.requests) == len(recording.attempts)
    assert not any(replay.requests)
    assert (replay.answer.error is None) == (failure is None)
    if failure is not None and failure.status is not None and failure.kind != "network":
        assert replay.answer.error is not None
        assert replay.answer.error.kind == failure.kind


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("question", ["hello", "think about it", "call a tool", "draw and cite"])
async def test_recordings_of_all_backends_can_be_replayed(
    backend: Any, question: str, tmp_path: Path
) -> None:
    async with Gateway() as gateway, open_client(backend, gateway.url) as client:
        path, live, _ = await record(client, tmp_path, request(question, tools=(TOOL,)))
    replay = await replay_recording(read_recording(path))
    assert diff_parts(live, replay.parts) == []
    assert replay.requests == [[]]


async def test_a_request_that_differs_from_the_recorded_one_is_reported(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        chat_request = request("hello", tools=(TOOL,), temperature=0.5)
        path, _, _ = await record(client, tmp_path, chat_request)
    recording = read_recording(path)
    (sent,) = [line for line in recording.lines if isinstance(line, RequestLine)]
    body = msgspec.json.decode(sent.body)
    del body["temperature"]
    body["input"][0]["content"] = "goodbye"
    body["tools"].append({"type": "function"})
    other = msgspec.structs.replace(sent, body=write_json(body))
    lines = tuple(other if line is sent else line for line in recording.lines)
    replay = await replay_recording(msgspec.structs.replace(recording, lines=lines))
    (differences,) = replay.requests
    assert sorted(differences) == [
        ("input[0].content", '"goodbye"', '"hello"'),
        ("temperature", None, "0.5"),
        ("tools[1]", '{"type":"function"}', None),
    ]


async def test_a_replayed_request_uses_the_recorded_quirks_and_capabilities(tmp_path: Path) -> None:
    learned = LearnedQuirks(Quirks(system="system", text_as="array"))
    abilities = Capabilities(tools=True, images=False, files=True, reasoning=False)
    image = DataPart(draw_png(), "image/png")
    messages = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, (image,)))
    chat_request = ChatRequest(model="tollbridge/demo", messages=messages)
    memory = CompatMemory(lambda _url, _model: learned.quirks)
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        writer = RecordingWriter(tmp_path, chat_request, learned=learned, capabilities=abilities)
        runner = Runner(client, compat=memory, observers=[writer])
        await runner.run(chat_request, lambda parts: None, capabilities=abilities)
        roles = [item["role"] for item in gateway.requests[-1].body["input"]]
    assert roles == ["system", "user"]
    assert (await replay_recording(read_recording(next(tmp_path.iterdir())))).requests == [[]]


async def test_a_recording_contains_the_request_the_bytes_and_the_times(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        path, _, _ = await record(client, tmp_path, request())
        sent = gateway.requests[-1]
    recording = read_recording(path)
    assert is_recording(path)
    (attempt,) = recording.attempts
    assert msgspec.json.decode(attempt.request.body) == sent.body
    assert attempt.response is not None
    assert attempt.response.status == 200
    assert b"response.completed" in b"".join(line.data for line in attempt.data)
    times = [line.at for line in recording.lines]
    assert times == sorted(times)
    assert recording.end is not None
    assert (recording.end.outcome, recording.end.finish_reason) == ("completed", "stop")
    assert msgspec.convert(recording.start.request, ChatRequest) == request()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_recording_contains_failed_attempts(tmp_path: Path) -> None:
    async with (
        Gateway(scenario="server-error-once") as gateway,
        OpenResponsesClient(gateway.url, retries=ONCE) as client,
    ):
        path, live, failure = await record(client, tmp_path, request())
    assert failure is None
    recording = read_recording(path)
    statuses = [attempt.response.status for attempt in recording.attempts if attempt.response]
    assert statuses == [500, 200]
    assert diff_parts(live, (await replay_recording(recording)).parts) == []


async def test_a_cancelled_turn_is_recorded_up_to_the_cancellation(tmp_path: Path) -> None:
    began = asyncio.Event()
    live: list[Part] = []

    def report(parts: list[Part]) -> None:
        live.extend(parts)
        began.set()

    async def turn(client: OpenResponsesClient) -> None:
        writer = RecordingWriter(tmp_path, request())
        await Runner(client, observers=[writer]).run(request(), report)

    async with (
        Gateway(scenario="slow", settings=FaultSettings(pace=0.05)) as gateway,
        OpenResponsesClient(gateway.url) as client,
    ):
        task = asyncio.ensure_future(turn(client))
        await asyncio.wait_for(began.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    recording = read_recording(next(tmp_path.iterdir()))
    assert recording.end is not None
    assert recording.end.outcome == "cancelled"
    assert diff_parts(live, (await replay_recording(recording)).parts) == []


async def test_a_key_in_the_output_of_the_model_is_not_recorded_in_pieces(tmp_path: Path) -> None:
    quoting = request(f"My key is {KEY}, remember it.")
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        path, live, _ = await record(client, tmp_path, quoting)
    assert KEY in "".join(getattr(part, "text", "") for part in live)
    assert KEY.encode() not in path.read_bytes()
    recording = read_recording(path)
    assert recording.start.redacted
    replay = (await replay_recording(recording)).parts
    assert KEY not in "".join(getattr(part, "text", "") for part in replay)
    assert diff_parts(recording.parts, replay) == []


async def test_a_key_in_an_error_of_the_gateway_is_redacted(tmp_path: Path) -> None:
    """The response is read in small pieces, so that no read contains the complete key."""
    writer = RecordingWriter(tmp_path, request())
    writer.request("openresponses", "http://h/v1/responses", {"authorization": f"Bearer {KEY}"}, b"{}")
    writer.response(401, {"content-type": "application/json"})
    body = b'{"error":{"message":"No such key: %b","type":"x"}}' % KEY.encode()
    for start in range(0, len(body), 7):
        writer.data(body[start : start + 7])
    await writer.end(completed())
    recording = read_recording(next(tmp_path.iterdir()))
    recorded = b"".join(line.data for line in recording.lines if isinstance(line, DataLine))
    assert recorded == body.replace(KEY.encode(), b"*" * len(KEY))
    assert not recording.start.redacted


async def test_content_is_removed_on_request(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        chat_request = request("think of Zanzibar and cite", tools=(TOOL,), metadata={"who": "Zanzibar"})
        path, live, _ = await record(client, tmp_path, chat_request, redacted=True)
    recording = read_recording(path)
    data = b"".join(line.data for line in recording.lines if isinstance(line, DataLine))
    for secret in (b"Zanzibar", b"weather "):
        assert secret not in path.read_bytes()
        assert secret not in data
    replay = (await replay_recording(recording)).parts
    assert diff_parts(recording.parts, replay) == []
    assert [type(part) for part in replay] == [type(part) for part in live]
    assert recording.start.redacted


async def test_a_recording_has_a_size_limit(tmp_path: Path) -> None:
    limits = RecorderLimits(recording_bytes=2_000)
    async with Gateway(scenario="long") as gateway, OpenResponsesClient(gateway.url) as client:
        path, live, _ = await record(client, tmp_path, request(), limits=limits)
    recording = read_recording(path)
    assert len([line for line in recording.lines if isinstance(line, TruncationLine)]) == 1
    assert sum(len(line.data) for line in recording.lines if isinstance(line, DataLine)) <= 2_000
    assert len(recording.parts) < len(live)


async def test_the_oldest_recordings_are_deleted_if_the_folder_exceeds_its_limits(tmp_path: Path) -> None:
    paths = []
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        for number in range(5):
            path, _, _ = await record(client, tmp_path, request(), limits=RecorderLimits(folder_files=3))
            os.utime(path, (number, number))
            paths.append(path)
        assert sorted(tmp_path.iterdir()) == sorted(paths[-3:])
        path, _, _ = await record(client, tmp_path, request(), limits=RecorderLimits(folder_bytes=1))
    assert list(tmp_path.iterdir()) == [path]  # the newest is kept, whatever its size


async def test_old_drafts_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    now = time.time()
    ages = {"20260101-000000-0123abcd.part": 7200, "20260101-000000-89abcdef.part": 60, "mine.part": 7200}
    for name, age in ages.items():
        (tmp_path / name).write_text("{}\n")
        os.utime(tmp_path / name, (now - age, now - age))
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        path, _, _ = await record(client, tmp_path, request())
    kept = ["20260101-000000-89abcdef.part", "mine.part", path.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


async def test_files_that_are_not_recordings_are_not_deleted(tmp_path: Path) -> None:
    limits = RecorderLimits(folder_files=1)
    user_files = ("training.jsonl", "20260101-000000-0123abcd.jsonl", "kept-recording.jsonl")
    for name in user_files[:2]:
        (tmp_path / name).write_text('{"prompt": "mine"}\n')
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        path, _, _ = await record(client, tmp_path, request(), limits=limits)
        path.rename(tmp_path / user_files[2])  # as a user would, to keep it
        for name in user_files:
            os.utime(tmp_path / name, (1, 1))
        old, _, _ = await record(client, tmp_path, request(), limits=limits)
        os.utime(old, (1, 1))
        new, _, _ = await record(client, tmp_path, request(), limits=limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*user_files, new.name])


async def test_a_turn_continues_if_the_folder_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    parts: list[Part] = []
    with caplog.at_level(logging.WARNING):
        async with (
            Gateway() as gateway,
            OpenResponsesClient(gateway.url) as client,
        ):
            writer = RecordingWriter(tmp_path / "file" / "folder", request())
            await Runner(client, observers=[writer]).run(request(), parts.extend)
    assert parts
    assert "could not be recorded" in caplog.text


@pytest.mark.parametrize(
    "method",
    [
        *("writer.hide_secrets", "writer.redact_headers", "draft.write_line", "writer.contains_key"),
        *("writer.PartsLine", "writer.RecordingStart"),
    ],
)
async def test_a_turn_continues_if_the_recorder_fails(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("a part of the conversation")

    monkeypatch.setattr(f"tollbridge.recorder.{method}", fail)
    parts: list[Part] = []
    async with Gateway() as gateway, OpenResponsesClient(gateway.url, KEY) as client:
        writer = RecordingWriter(tmp_path, request())
        await Runner(client, observers=[writer]).run(request(), parts.extend)
    assert parts
    assert not list(tmp_path.iterdir())  # what was written may not be redacted completely
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "could not be recorded" in record.getMessage()
    assert "conversation" not in caplog.text


async def test_a_recording_with_a_short_key_keeps_its_content(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        writer = RecordingWriter(tmp_path, request(), keys=("e",))
        await Runner(client, observers=[writer]).run(request(), lambda _: None, api_key="e")
    recording = read_recording(writer._file.path)
    assert "hello" in recording.attempts[0].request.body
    assert "Bearer e" not in writer._file.path.read_text()


async def test_the_password_of_a_redirect_is_not_recorded(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, request())
    writer.request("openresponses", "http://user:pass@127.0.0.1/v1/responses", {}, b"{}")
    writer.response(302, {"location": "http://user:pass@127.0.0.1/"})
    answer = Answer()
    answer.end("failed", NetworkFailed("Redirected to http://user:pass@127.0.0.1/."))
    await writer.end(answer)
    text = writer._file.path.read_text()
    assert "127.0.0.1" in text
    assert "pass" not in text


async def test_concurrent_turns_have_separate_recordings(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        recordings = await asyncio.gather(
            *(record(client, tmp_path, request(f"number {number}")) for number in range(10))
        )
    for number, (path, live, _) in enumerate(recordings):
        recording = read_recording(path)
        assert diff_parts(live, recording.parts) == []
        (sent,) = [line for line in recording.lines if isinstance(line, RequestLine)]
        assert f"number {number}" in sent.body


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            RecordingStart(0.0, FORMAT, "1.0", 9.0, {}, {"a": 1}, True, {}, {}),
            '{"line":"begun","at":0.0,"format":1,"tollbridge":"1.0","started":9.0,"request":{},"said":{"a":1},'
            '"redacted":true,"learned":{},"abilities":{}}',
        ),
        (
            RequestLine(0.5, "openresponses", "http://h/v1/responses", {"a": "b"}, "", 7),
            '{"line":"sent","at":0.5,"protocol":"openresponses","url":"http://h/v1/responses",'
            '"headers":{"a":"b"},"body":"","left_out":7}',
        ),
        (ResponseLine(1.0, 200, {}), '{"line":"answered","at":1.0,"status":200,"headers":{}}'),
        (DataLine(1.5, b"{}"), '{"line":"received","at":1.5,"data":"e30="}'),
        (PartsLine(2.0, ()), '{"line":"parts","at":2.0,"parts":[]}'),
        (TruncationLine(2.5, 32), '{"line":"cut","at":2.5,"kept":32}'),
        (
            EndLine(3.0, "completed", None, "stop"),
            '{"line":"ended","at":3.0,"outcome":"completed","finish_reason":"stop"}',
        ),
    ],
)
def test_the_names_in_the_file_do_not_change(line: AnyLine, text: str) -> None:
    assert write_line(line) == f"{text}\n"
    assert read_line(text.encode()) == line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a recording"),
        ('{"line":"ended","at":0,"outcome":"x"}', "missing start record"),
        ('{"line":"begun"}', "line 1 is not a valid recording line: Object missing required field `at`"),
        ("nonsense", "line 1 is not a valid recording line"),
        (
            '{"line":"begun","at":0,"format":99,"tollbridge":"9","started":0,"request":{}}',
            "newer version of Tollbridge .9.",
        ),
    ],
)
def test_an_invalid_recording_is_reported(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(text)
    with pytest.raises(RequestError, match=words):
        read_recording(path)
