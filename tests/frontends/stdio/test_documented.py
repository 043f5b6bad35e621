"""What `docs/protocol.md` says is so, and its example runs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import get_args

import msgspec
from tests.frontends.stdio.stdio_client import SRC

from tollbridge.frontends.stdio import errors as faults
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.limits import LIMITS
from tollbridge.frontends.stdio.methods import METHODS
from tollbridge.frontends.stdio.watchdog import EXIT_FROZEN
from tollbridge.protocols import jsonrpc
from tollbridge.transport.retry import RetryPolicy
from tollbridge.transport.stdio import QUEUE_LIMIT_BYTES, QUEUE_WAIT_BYTES
from tollbridge.types.errors import Kind
from tollbridge.types.events import FinishReason

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "protocol.md").read_text()


def test_every_method_is_documented() -> None:
    for method in METHODS:
        assert f"`{method}`" in TEXT or f"### {method}\n" in TEXT, method


def test_the_methods_that_are_answered_when_they_are_ready_are_listed_twice() -> None:
    names = {name for name, method in METHODS.items() if method.thread == "loop"}
    lifecycle = re.search(r"responses to ([^;.]*) come when they are ready", TEXT)
    pending = re.search(r"^\| `pending` \| .*?: (.*) \|$", TEXT, re.MULTILINE)
    for sentence in (lifecycle, pending):
        assert sentence is not None
        assert set(re.findall(r"`(\w+)`", sentence[1])) == names


def test_every_kind_and_code_of_error_is_documented() -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| {faults.TURN_FAILED}"))
    assert set(re.findall(r"`(\w+)`", row)) == set(get_args(Kind))
    for code in (
        jsonrpc.PARSE_ERROR,
        jsonrpc.INVALID_REQUEST,
        jsonrpc.METHOD_NOT_FOUND,
        jsonrpc.INVALID_PARAMS,
        jsonrpc.INTERNAL_ERROR,
        jsonrpc.NOT_INITIALIZED,
        jsonrpc.REQUEST_CANCELLED,
    ):
        assert str(code) in TEXT


def test_the_documented_limits_and_version_are_the_real_ones() -> None:
    assert f"Protocol version: **{wire.PROTOCOL_VERSION}**" in TEXT
    assert f"| header | {jsonrpc.MAX_HEADER_BYTES // 1024} KiB |" in TEXT
    assert f"| body | {jsonrpc.MAX_FRAME_BYTES // 1024**2} MiB |" in TEXT
    assert f'"maxFrameBytes": {jsonrpc.MAX_FRAME_BYTES}' in TEXT


def test_every_field_of_the_status_is_documented() -> None:
    section = TEXT.partition("### status\n")[2].partition("## Errors")[0]
    fields = msgspec.structs.fields(wire.StatusResult)
    signature = section.partition("→ `{")[2].partition("}`")[0].split(", ")
    assert signature == [f"{field.encode_name}{'' if field.required else '?'}" for field in fields]


def test_the_documented_flow_control_and_watchdog_are_the_real_ones() -> None:
    assert f"When {QUEUE_WAIT_BYTES // 1024**2} MiB is waiting" in TEXT
    assert f"leaves {QUEUE_LIMIT_BYTES // 1024**2} MiB unread" in TEXT
    assert f"does not react for {LIMITS.freeze_seconds:g} seconds" in TEXT
    assert f"| {EXIT_FROZEN}, or `SIGPROF` |" in TEXT
    assert f"`data.kind` is `{faults.CANCELLED.data['kind']}`" in TEXT
    assert RetryPolicy().attempts == 3
    assert "is sent up to three times" in TEXT
    assert f"a delay of more than {LIMITS.longest_retry:g} seconds" in TEXT
    assert f"The first one without an answer is sent after {LIMITS.note_seconds[0]} seconds" in TEXT
    assert "(after {}, {} and {} seconds and later)".format(*LIMITS.note_seconds[1:4]) in TEXT


def test_the_documented_frame_is_one() -> None:
    header, body = re.findall(r"```\n(Content-Length.*?)\\r\\n\n\\r\\n\n(.*?)\n```", TEXT, re.DOTALL)[0]
    (call,) = jsonrpc.Reader().feed(f"{header}\r\n\r\n{body}".encode())
    assert isinstance(call, jsonrpc.Call)


def test_what_a_turns_result_may_leave_out_is_marked() -> None:
    result = TEXT.partition("### chat\n")[2].partition("→\n")[2].partition("```")[0]
    field_marks = dict(re.findall(r'^(?:\{|) +"(\w+)": (?:.*?)// ?(\?|)', result, re.MULTILINE))
    fields = msgspec.structs.fields(wire.ChatResult)
    assert field_marks == {field.encode_name: "" if field.required else "?" for field in fields}
    fields = (*msgspec.structs.fields(wire.TokenUsage), *msgspec.structs.fields(wire.TurnCost))
    optional = {f"{field.encode_name}?" for field in fields if not field.required}
    assert set(re.findall(r"\w+\?", result)) == optional


def test_a_result_of_which_nothing_is_known_leaves_it_out() -> None:
    result = wire.ChatResult(seconds=0.5, counts_revision=1)
    assert msgspec.to_builtins(result) == {"seconds": 0.5, "countsRevision": 1}


def test_every_reason_an_answer_ends_for_is_documented() -> None:
    line = next(line for line in TEXT.splitlines() if '"finishReason"' in line)
    assert tuple(line.partition("// ? ")[2].split(", ")) == get_args(FinishReason)


async def test_the_example_runs() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / "sidecar_client.py"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "Models: Demo, Plain" in out.decode()
    assert "You said" in out.decode()
