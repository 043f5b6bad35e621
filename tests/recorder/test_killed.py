"""Recordings of killed processes are readable up to that moment, and contain no key."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cli.cli_process import environment, tollbridge
from tests.turns import completed

from tollbridge.recorder.files import RecorderLimits
from tollbridge.recorder.recording import DataLine, Recording, RecordingStart, RequestLine, read_recording
from tollbridge.recorder.replay import diff_parts, replay_recording
from tollbridge.recorder.writer import RecordingWriter
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.events import TextDelta
from tollbridge.types.messages import ChatRequest, Message, Origin, Role

KEY = "tk-0123456789-secret"
SLOW = FaultSettings(pace=0.05)
ORIGIN = Origin("m", "http://h/v1")


@asynccontextmanager
async def end_after(writer: RecordingWriter) -> AsyncIterator[RecordingWriter]:
    """Yield the writer and end the recording afterwards."""
    yield writer
    await writer.end(completed())


async def record_and_kill(folder: Path, question: str, *options: str) -> Path:
    """Record a turn, kill its process during the answer, and return the file."""
    async with Gateway(scenario="slow", settings=SLOW) as gateway:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tollbridge", "ask", question, "--model", "tollbridge/demo"),
            *("--base-url", gateway.url, "--record", str(folder), *options),
            env=environment({"TOLLBRIDGE_API_KEY": KEY}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        async with asyncio.timeout(60):
            await process.stdout.readexactly(20)
            await asyncio.sleep(0.5)
        process.kill()
        await process.communicate()
    (path,) = folder.iterdir()
    return path


def response_bytes(recording: Recording) -> bytes:
    return b"".join(line.data for line in recording.lines if isinstance(line, DataLine))


async def test_the_recording_of_a_killed_process_contains_everything_received_so_far(tmp_path: Path) -> None:
    path = await record_and_kill(tmp_path, "hello")
    recording = read_recording(path)
    assert recording.end is None
    assert b"response.output_text.delta" in response_bytes(recording)
    parts = recording.parts
    assert "".join(getattr(part, "text", "") for part in parts).startswith("You said")
    assert diff_parts(parts, (await replay_recording(recording)).parts[: len(parts)]) == []
    shown = await tollbridge("replay", "--diff", str(path))
    assert shown.code == 0
    assert "interrupted: the process ended before the turn did" in shown.out
    as_json = await tollbridge("replay", "--json", str(path))
    assert json.loads(as_json.out)["outcome"] == "interrupted"


@pytest.mark.parametrize("options", [(), ("--record-redact",)])
async def test_a_key_in_the_prompt_is_not_in_the_recording_of_a_killed_process(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    path = await record_and_kill(tmp_path, f"My key is {KEY}, remember it.", *options)
    recording = read_recording(path)
    output = "".join(getattr(part, "text", "") for part in (await replay_recording(recording)).parts)
    assert len(output) > 20
    for piece in (KEY, KEY[:10], KEY[-10:]):
        assert piece.encode() not in path.read_bytes()
        assert piece.encode() not in response_bytes(recording)
        assert piece not in output
    assert recording.start.redacted


async def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    path = await record_and_kill(tmp_path, "hello")
    lines = read_recording(path).lines
    path.write_bytes(path.read_bytes()[:-7])
    assert read_recording(path).lines == lines[:-1]


async def test_every_line_is_on_disk_before_the_next_bytes_are_received(tmp_path: Path) -> None:
    request = ChatRequest(model="m", messages=(Message(Role.USER, "hello"),))
    async with end_after(RecordingWriter(tmp_path, request)) as writer:
        writer.request("openresponses", "http://h/v1/responses", {"authorization": f"Bearer {KEY}"}, b"{}")
        (path,) = tmp_path.iterdir()
        assert [type(line) for line in read_recording(path).lines] == [RecordingStart, RequestLine]
        for number in range(5):
            writer.data(b"%d" % number * 100)
        recorded = response_bytes(read_recording(path))
    assert len(recorded) == 300  # without the last chunk, and the one before it, in which a key may start
    assert response_bytes(read_recording(path)) == b"".join(b"%d" % number * 100 for number in range(5))
    assert os.listdir(tmp_path) == [path.name]


async def test_a_key_in_the_output_only_is_redacted_while_the_turn_runs(tmp_path: Path) -> None:
    """The prompt does not contain the key, so nothing is redacted until the key is complete."""
    request = ChatRequest(model="m", messages=(Message(Role.USER, "hello"),))
    async with end_after(RecordingWriter(tmp_path, request)) as writer:
        writer.request("openresponses", "http://h/v1/responses", {"authorization": f"Bearer {KEY}"}, b"{}")
        writer.response(200, {"content-type": "text/event-stream"})
        for piece in ["Your key: ", *(KEY[at : at + 4] for at in range(0, len(KEY), 4)), ", and so on" * 9]:
            delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": piece}
            writer.data(b"data: %b\n\n" % json.dumps(delta).encode())
            writer.events([TextDelta(piece)])
        (path,) = tmp_path.iterdir()
        recording = read_recording(path)
        output = "".join(getattr(part, "text", "") for part in (await replay_recording(recording)).parts)
        assert "xx" in output
        for piece in (KEY, KEY[:4], KEY[-4:]):
            assert piece not in output
    assert read_recording(path).start.redacted


async def test_a_request_that_is_too_large_is_omitted_and_the_response_is_recorded(tmp_path: Path) -> None:
    request = ChatRequest(model="m", messages=(Message(Role.USER, "x" * 60_000),))
    async with end_after(
        RecordingWriter(
            tmp_path,
            request,
            editor_request={"text": "y" * 60_000},
            limits=RecorderLimits(recording_bytes=100_000),
        )
    ) as writer:
        writer.request("openresponses", "http://h/v1/responses", {}, b"z" * 60_000)
        writer.response(200, {})
        writer.data(b"data: {}\n\n")
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size < 100_000
    recording = read_recording(path)
    assert (recording.start.request["model"], recording.start.editor_request) == ("m", None)
    (sent,) = [line for line in recording.lines if isinstance(line, RequestLine)]
    assert (sent.body, sent.omitted_bytes) == ("", 60_000)
    assert response_bytes(recording) == b"data: {}\n\n"
    shown = await tollbridge("replay", str(path))
    assert (
        "60,000 bytes to http://h/v1/responses (openresponses); the body was too large to record"
        in " ".join(shown.out.split())
    )
