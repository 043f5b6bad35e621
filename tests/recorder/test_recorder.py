"""Turns against the embedded gateway, recorded and played again."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tollbridge.clients.base import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory, LearnedQuirks
from tollbridge.engine import open_client
from tollbridge.frontends.vscode.provider import Bridge
from tollbridge.recorder.recorder import Recorder
from tollbridge.recorder.recording import Cut, Received, Sent, is_recording, read_recording
from tollbridge.recorder.replay import diff_parts, replay_recording
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.scenarios import SCENARIOS
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError, RequestError
from tollbridge.types.media import draw_png
from tollbridge.types.messages import ChatRequest, DataPart, Message, Part, Role, Tool
from tollbridge.types.models import Capabilities
from tollbridge.types.quirks import Quirks
from tollbridge.types.text import write_json

KEY = "tk-0123456789-secret"
QUICK = FaultSettings(stall_seconds=0.05, oversized_bytes=200_000, pace=0.001)
ONCE = RetryPolicy(attempts=2, first=0.01)
TOOL = Tool("get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})


def request(text: str = "hello", **fields: Any) -> ChatRequest:
    return ChatRequest(model="tollbridge/demo", messages=(Message(Role.USER, text),), **fields)


async def record(
    client: GatewayClient, folder: Path, asked: ChatRequest, *, redacted: bool = False
) -> tuple[Path, list[Part], BridgeError | None]:
    """The file of one turn, the parts of the live run, and how that failed."""
    recorder = Recorder(folder, redacted=redacted)
    parts: list[Part] = []
    failure: BridgeError | None = None
    try:
        async with recorder.tape(asked, learned=LearnedQuirks()) as tape:
            turn = await Bridge(client.observed_by(tape)).answer(asked, tape.heard(parts.extend), api_key=KEY)
            tape.finished(turn.finish_reason, turn.usage)
    except BridgeError as error:
        failure = error
    return tape._file.path, parts, failure


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_scenario_replays_to_the_same_parts_byte_for_byte(scenario: str, tmp_path: Path) -> None:
    async with (
        Gateway(settings=QUICK, scenario=scenario) as gateway,
        OpenResponsesClient(gateway.url, retries=ONCE) as client,
    ):
        path, live, failure = await record(client, tmp_path, request("Say what you see.", tools=(TOOL,)))
    recording = read_recording(path)
    played = await replay_recording(recording)
    assert [write_json(part) for part in recording.parts] == [write_json(part) for part in live]
    assert [write_json(part) for part in played.parts] == [write_json(part) for part in live]
    assert len(played.requests) == len(recording.attempts)
    assert not any(played.requests)
    assert (played.error is None) == (failure is None)
    if failure is not None and failure.status is not None and failure.kind != "network":
        assert played.error is not None
        assert played.error.kind == failure.kind


@pytest.mark.parametrize("backend", ["openresponses", "ai-sdk"])
@pytest.mark.parametrize("question", ["hello", "think about it", "call a tool", "draw and cite"])
async def test_each_backend_replays(backend: Any, question: str, tmp_path: Path) -> None:
    async with Gateway() as gateway, open_client(backend, gateway.url) as client:
        path, live, _ = await record(client, tmp_path, request(question, tools=(TOOL,)))
    played = await replay_recording(read_recording(path))
    assert diff_parts(live, played.parts) == []
    assert played.requests == [[]]


async def test_a_request_that_would_be_put_otherwise_today_is_found_out(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        asked = request("hello", tools=(TOOL,), temperature=0.5)
        path, _, _ = await record(client, tmp_path, asked)
    recording = read_recording(path)
    (sent,) = [line for line in recording.lines if isinstance(line, Sent)]
    body = msgspec.json.decode(sent.body)
    del body["temperature"]
    body["input"][0]["content"] = "goodbye"
    body["tools"].append({"type": "function"})
    other = msgspec.structs.replace(sent, body=write_json(body))
    lines = tuple(other if line is sent else line for line in recording.lines)
    played = await replay_recording(msgspec.structs.replace(recording, lines=lines))
    (found,) = played.requests
    assert sorted(found) == [
        ("input[0].content", '"goodbye"', '"hello"'),
        ("temperature", None, "0.5"),
        ("tools[1]", '{"type":"function"}', None),
    ]


async def test_a_request_is_put_by_what_was_known_then(tmp_path: Path) -> None:
    known = LearnedQuirks(Quirks(system="system", text_as="array"))
    abilities = Capabilities(tools=True, images=False, files=True, reasoning=False)
    image = DataPart(draw_png(), "image/png")
    messages = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, (image,)))
    asked = ChatRequest(model="tollbridge/demo", messages=messages)
    lessons = CompatMemory()
    recorder = Recorder(tmp_path)
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        lessons.learn(client.base_url, asked.model, known)
        async with recorder.tape(asked, learned=known, abilities=abilities) as tape:
            bridge = Bridge(client.observed_by(tape), lessons=lessons)
            await bridge.answer(asked, tape.heard(lambda parts: None), abilities=abilities)
        roles = [item["role"] for item in gateway.requests[-1].body["input"]]
    assert roles == ["system", "user"]
    assert (await replay_recording(read_recording(next(tmp_path.iterdir())))).requests == [[]]


async def test_a_recording_has_the_request_the_bytes_and_the_times(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        path, _, _ = await record(client, tmp_path, request())
        sent = gateway.requests[-1]
    recording = read_recording(path)
    assert is_recording(path)
    (attempt,) = recording.attempts
    assert msgspec.json.decode(attempt.sent.body) == sent.body
    assert attempt.answered is not None
    assert attempt.answered.status == 200
    assert b"response.completed" in b"".join(line.data for line in attempt.received)
    times = [line.at for line in recording.lines]
    assert times == sorted(times)
    assert recording.ended is not None
    assert (recording.ended.outcome, recording.ended.finish_reason) == ("completed", "stop")
    assert msgspec.convert(recording.begun.request, ChatRequest) == request()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_attempts_that_failed_are_on_it_too(tmp_path: Path) -> None:
    async with (
        Gateway(scenario="server-error-once") as gateway,
        OpenResponsesClient(gateway.url, retries=ONCE) as client,
    ):
        path, live, failure = await record(client, tmp_path, request())
    assert failure is None
    recording = read_recording(path)
    statuses = [attempt.answered.status for attempt in recording.attempts if attempt.answered]
    assert statuses == [500, 200]
    assert diff_parts(live, (await replay_recording(recording)).parts) == []


async def test_a_turn_that_was_stopped_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    began = asyncio.Event()
    live: list[Part] = []
    recorder = Recorder(tmp_path)

    def report(parts: list[Part]) -> None:
        live.extend(parts)
        began.set()

    async def turn(client: OpenResponsesClient) -> None:
        async with recorder.tape(request()) as tape:
            await Bridge(client.observed_by(tape)).answer(request(), tape.heard(report))

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
    assert recording.ended is not None
    assert recording.ended.outcome == "cancelled"
    assert diff_parts(live, (await replay_recording(recording)).parts) == []


async def test_a_key_that_the_model_spells_out_is_not_recorded_in_pieces(tmp_path: Path) -> None:
    quoting = request(f"My key is {KEY}, remember it.")
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        path, live, _ = await record(client, tmp_path, quoting)
    assert KEY in "".join(getattr(part, "text", "") for part in live)
    assert KEY.encode() not in path.read_bytes()
    recording = read_recording(path)
    assert recording.begun.redacted
    played = (await replay_recording(recording)).parts
    assert KEY not in "".join(getattr(part, "text", "") for part in played)
    assert diff_parts(recording.parts, played) == []


async def test_a_key_that_the_gateway_quotes_is_covered_where_it_stands(tmp_path: Path) -> None:
    """Read in small pieces, so that no read has the key whole."""
    recorder = Recorder(tmp_path)
    async with recorder.tape(request()) as tape:
        tape.request("openresponses", "http://h/v1/responses", {"authorization": f"Bearer {KEY}"}, b"{}")
        tape.response(401, {"content-type": "application/json"})
        body = b'{"error":{"message":"No such key: %b","type":"x"}}' % KEY.encode()
        for start in range(0, len(body), 7):
            tape.data(body[start : start + 7])
    recording = read_recording(next(tmp_path.iterdir()))
    kept = b"".join(line.data for line in recording.lines if isinstance(line, Received))
    assert kept == body.replace(KEY.encode(), b"*" * len(KEY))
    assert not recording.begun.redacted


async def test_content_is_blotted_out_where_that_is_asked(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        asked = request("think of Zanzibar and cite", tools=(TOOL,), metadata={"who": "Zanzibar"})
        path, live, _ = await record(client, tmp_path, asked, redacted=True)
    recording = read_recording(path)
    data = b"".join(line.data for line in recording.lines if isinstance(line, Received))
    for secret in (b"Zanzibar", b"weather "):
        assert secret not in path.read_bytes()
        assert secret not in data
    played = (await replay_recording(recording)).parts
    assert diff_parts(recording.parts, played) == []
    assert [type(part) for part in played] == [type(part) for part in live]
    assert recording.begun.redacted


async def test_a_tape_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollbridge.recorder.recorder.RECORDING_LIMIT", 2_000)
    async with Gateway(scenario="long") as gateway, OpenResponsesClient(gateway.url) as client:
        path, live, _ = await record(client, tmp_path, request())
    recording = read_recording(path)
    assert len([line for line in recording.lines if isinstance(line, Cut)]) == 1
    assert sum(len(line.data) for line in recording.lines if isinstance(line, Received)) <= 2_000
    assert len(recording.parts) < len(live)


async def test_a_folder_has_a_limit_and_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollbridge.recorder.recorder.FILE_LIMIT", 3)
    paths = []
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        for number in range(5):
            path, _, _ = await record(client, tmp_path, request())
            os.utime(path, (number, number))
            paths.append(path)
        monkeypatch.setattr("tollbridge.recorder.recorder.SIZE_LIMIT", 1)
        assert sorted(tmp_path.iterdir()) == sorted(paths[-3:])
        path, _, _ = await record(client, tmp_path, request())
    assert list(tmp_path.iterdir()) == [path]  # the newest stays, however large


async def test_a_folder_that_is_full_keeps_the_files_that_are_not_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollbridge.recorder.recorder.FILE_LIMIT", 1)
    theirs = ("training.jsonl", "20260101-000000-0123abcd.jsonl", "kept-recording.jsonl")
    for name in theirs[:2]:
        (tmp_path / name).write_text('{"prompt": "mine"}\n')
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        path, _, _ = await record(client, tmp_path, request())
        path.rename(tmp_path / theirs[2])  # by a person, to keep it
        for name in theirs:
            os.utime(tmp_path / name, (1, 1))
        old, _, _ = await record(client, tmp_path, request())
        os.utime(old, (1, 1))
        new, _, _ = await record(client, tmp_path, request())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*theirs, new.name])


async def test_a_folder_that_cannot_be_written_does_not_stop_a_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(tmp_path / "file" / "folder")
    parts: list[Part] = []
    with caplog.at_level(logging.WARNING):
        async with (
            Gateway() as gateway,
            OpenResponsesClient(gateway.url) as client,
            recorder.tape(request()) as tape,
        ):
            await Bridge(client.observed_by(tape)).answer(request(), tape.heard(parts.extend))
    assert parts
    assert "could not be recorded" in caplog.text


async def test_turns_at_once_are_on_tapes_of_their_own(tmp_path: Path) -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        made = await asyncio.gather(
            *(record(client, tmp_path, request(f"number {number}")) for number in range(10))
        )
    for number, (path, live, _) in enumerate(made):
        recording = read_recording(path)
        assert diff_parts(live, recording.parts) == []
        (sent,) = [line for line in recording.lines if isinstance(line, Sent)]
        assert f"number {number}" in sent.body


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a recording"),
        ('{"line":"ended","at":0,"outcome":"x"}', "does not begin with how the turn began"),
        ('{"line":"begun"}', "line 1, is not of a recording: Object missing required field `at`"),
        ("nonsense", "line 1, is not of a recording"),
        (
            '{"line":"begun","at":0,"format":99,"tollbridge":"9","started":0,"request":{}}',
            "newer Tollbridge .9.",
        ),
    ],
)
def test_what_is_no_recording_is_told(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(text)
    with pytest.raises(RequestError, match=words):
        read_recording(path)
