"""What is left of a turn whose process was killed: as far as it came, readable, and without any key."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.cli.cli_process import environment, tollbridge

from tollbridge.recorder.recorder import Recorder
from tollbridge.recorder.recording import Begun, Received, Recording, Sent, read_recording
from tollbridge.recorder.replay import diff_parts, replay_recording
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.messages import ChatRequest, Message, Part, Role, TextPart

KEY = "tk-0123456789-secret"
SLOW = FaultSettings(pace=0.05)


async def killed(folder: Path, question: str, *options: str) -> Path:
    """The file of a turn whose process is killed in the middle of the answer."""
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


def answer(recording: Recording) -> bytes:
    return b"".join(line.data for line in recording.lines if isinstance(line, Received))


async def test_a_turn_whose_process_was_killed_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    path = await killed(tmp_path, "hello")
    recording = read_recording(path)
    assert recording.ended is None
    assert b"response.output_text.delta" in answer(recording)
    parts = recording.parts
    assert "".join(getattr(part, "text", "") for part in parts).startswith("You said")
    assert diff_parts(parts, (await replay_recording(recording)).parts[: len(parts)]) == []
    shown = await tollbridge("replay", "--diff", str(path))
    assert shown.code == 0
    assert "interrupted: the process ended before the turn did" in shown.out
    told = await tollbridge("replay", "--json", str(path))
    assert json.loads(told.out)["outcome"] == "interrupted"


@pytest.mark.parametrize("options", [(), ("--record-redact",)])
async def test_a_key_that_a_model_was_told_is_not_in_what_is_left(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    path = await killed(tmp_path, f"My key is {KEY}, remember it.", *options)
    recording = read_recording(path)
    spoken = "".join(getattr(part, "text", "") for part in (await replay_recording(recording)).parts)
    assert len(spoken) > 20
    for piece in (KEY, KEY[:10], KEY[-10:]):
        assert piece.encode() not in path.read_bytes()
        assert piece.encode() not in answer(recording)
        assert piece not in spoken
    assert recording.begun.redacted


async def test_what_is_left_ends_before_a_line_that_was_torn(tmp_path: Path) -> None:
    path = await killed(tmp_path, "hello")
    whole = read_recording(path).lines
    path.write_bytes(path.read_bytes()[:-7])
    assert read_recording(path).lines == whole[:-1]


async def test_every_line_is_on_disk_before_the_next_bytes_come(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    asked = ChatRequest(model="m", messages=(Message(Role.USER, "hello"),))
    async with recorder.tape(asked) as tape:
        tape.asked("openresponses", "http://h/v1/responses", {"authorization": f"Bearer {KEY}"}, b"{}")
        (path,) = tmp_path.iterdir()
        assert [type(line) for line in read_recording(path).lines] == [Begun, Sent]
        for number in range(5):
            tape.received(b"%d" % number * 100)
        kept = answer(read_recording(path))
    assert len(kept) == 300  # all but the last, and the one before that a key may have begun in
    assert answer(read_recording(path)) == b"".join(b"%d" % number * 100 for number in range(5))
    assert os.listdir(tmp_path) == [path.name]


async def test_a_key_that_only_the_server_spells_out_is_covered_meanwhile_too(tmp_path: Path) -> None:
    """Nobody told it to the model, so that nothing is covered until it is whole."""
    recorder = Recorder(tmp_path)
    asked = ChatRequest(model="m", messages=(Message(Role.USER, "hello"),))
    async with recorder.tape(asked) as tape:
        tape.asked("openresponses", "http://h/v1/responses", {"authorization": f"Bearer {KEY}"}, b"{}")
        tape.answered(200, {"content-type": "text/event-stream"})
        hear = tape.heard(lambda parts: None)
        for piece in ["Your key: ", *(KEY[at : at + 4] for at in range(0, len(KEY), 4)), ", and so on" * 9]:
            delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": piece}
            tape.received(b"data: %b\n\n" % json.dumps(delta).encode())
            hear([TextPart(piece)])
        (path,) = tmp_path.iterdir()
        recording = read_recording(path)
        spoken = "".join(getattr(part, "text", "") for part in (await replay_recording(recording)).parts)
        assert "xx" in spoken
        for piece in (KEY, KEY[:4], KEY[-4:]):
            assert piece not in spoken
    assert read_recording(path).begun.redacted


async def test_a_request_that_is_too_large_is_left_out_and_the_answer_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollbridge.recorder.recorder.RECORDING_LIMIT", 100_000)
    recorder = Recorder(tmp_path)
    report: list[Part] = []
    asked = ChatRequest(model="m", messages=(Message(Role.USER, "x" * 60_000),))
    async with recorder.tape(asked, said={"text": "y" * 60_000}) as tape:
        tape.heard(report.extend)
        tape.asked("openresponses", "http://h/v1/responses", {}, b"z" * 60_000)
        tape.answered(200, {})
        tape.received(b"data: {}\n\n")
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size < 100_000
    recording = read_recording(path)
    assert (recording.begun.request["model"], recording.begun.said) == ("m", None)
    (sent,) = [line for line in recording.lines if isinstance(line, Sent)]
    assert (sent.body, sent.left_out) == ("", 60_000)
    assert answer(recording) == b"data: {}\n\n"
    shown = await tollbridge("replay", str(path))
    assert "60,000 bytes to http://h/v1/responses (openresponses), not kept" in " ".join(shown.out.split())
