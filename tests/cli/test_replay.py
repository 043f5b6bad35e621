"""`tollbridge replay` with responses of real servers. The expected values were read from the recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.cli_process import tollbridge
from tests.turns import answer_of

from tollbridge.cli.output import describe_answer, to_json
from tollbridge.protocols.detect import decoder_for, stream_names

RECORDINGS = Path(__file__).parent.parent / "recordings" / "openresponses"
FIELDS = [
    *("file", "text", "reasoning", "tool_calls", "files", "sources", "data"),
    *("usage", "finish_reason", "errors", "ended"),
]
LITELLM_USAGE = {"input": 11, "output": 7, "total": 18, "cached": 3, "reasoning": 2}


async def replayed(*names: str) -> list[dict[str, Any]]:
    result = await tollbridge("replay", "--json", *(str(RECORDINGS / name) for name in names))
    assert (result.code, result.err) == (0, "")
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["file"] for line in lines] == [str(RECORDINGS / name) for name in names]
    return lines


async def test_every_recording_gives_one_line_in_the_order_given() -> None:
    names = sorted(path.name for path in RECORDINGS.iterdir() if path.suffix in (".sse", ".json"))
    assert len(names) > 20
    for line in await replayed(*reversed(names)):
        assert list(line) == FIELDS
        assert (line["ended"] in ("error", "cut")) == bool(line["errors"])


async def test_responses_of_real_servers() -> None:
    text, reasoning, calls, length, unsaid, count = await replayed(
        "litellm.text-stream.sse",
        "litellm.reasoning-stream.sse",
        "litellm.parallel-stream.sse",
        "litellm.length-stream.sse",
        "llamacpp.length-stream.sse",
        "llamacpp.input-tokens.json",
    )
    assert text["text"] == "Hello from the mock é你😀!\n"
    assert (text["usage"], text["finish_reason"], text["ended"]) == (LITELLM_USAGE, "stop", "finish")
    assert reasoning["reasoning"] == "Let me think."
    assert [(call["call_id"], call["input"], call["offered"]) for call in calls["tool_calls"]] == [
        ("call_0abc", {"location": "San Francisco"}, True),
        ("call_1abc", {"location": "Paris"}, True),
    ]
    assert (calls["text"], calls["finish_reason"]) == ("Checking. ", "tool-calls")
    assert (length["finish_reason"], length["ended"]) == ("length", "incomplete")
    # llama.cpp reports "completed" for an answer that reached its limit; nothing else shows it.
    assert (unsaid["finish_reason"], unsaid["ended"]) == ("stop", "finish")
    assert unsaid["usage"] == {"input": 35, "output": 16, "total": 51, "cached": 24, "reasoning": None}
    assert (count["usage"]["input"], count["usage"]["output"]) == (32, None)


async def test_failures_of_real_servers() -> None:
    dropped, limited, long, plain = await replayed(
        "litellm.middrop-stream.sse",
        "litellm.err429-stream.sse",
        "llamacpp.toolong-stream.json",
        "transformers.noinput.json",
    )
    assert (dropped["text"], dropped["ended"], dropped["finish_reason"]) == ("Hello from the", "error", None)
    assert [error["kind"] for error in dropped["errors"]] == ["server"]
    assert [error["kind"] for error in limited["errors"]] == ["rate_limited"]
    assert [error["kind"] for error in long["errors"]] == ["context_too_long"]
    unknown = dict.fromkeys(("code", "request_id", "retry_after"))
    assert plain["errors"] == [
        {"kind": "server", "message": "Internal Server Error", "status": 500, **unknown}
    ]


async def test_a_file_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    good = str(RECORDINGS / "litellm.text-stream.sse")
    missing = str(tmp_path / "none.sse")
    result = await tollbridge("replay", "--json", good, missing, str(tmp_path), "/", good)
    assert result.code == 1
    assert [json.loads(line)["file"] for line in result.out.splitlines()] == [good, good]
    first, second, third = result.err.splitlines()
    assert first == (
        f"Error: Cannot read {missing}: No such file or directory. Specify the path of a recording."
    )
    assert second.startswith(f"Error: Cannot read {tmp_path}: Is a directory.")
    assert third.startswith("Error: Cannot read /: Is a directory.")


async def test_an_empty_file_is_not_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "empty.sse"
    path.touch()
    result = await tollbridge("replay", "--json", str(path))
    assert (result.code, result.out) == (1, "")
    assert result.err == f"Error: {path} is empty. Specify a file with a recording.\n"


async def test_an_empty_body_with_headers_is_the_error_of_its_status(tmp_path: Path) -> None:
    (tmp_path / "empty.sse").touch()
    (tmp_path / "empty.headers").write_text("HTTP/1.1 503\n")
    result = await tollbridge("replay", "--json", str(tmp_path / "empty.sse"))
    assert result.code == 0
    assert json.loads(result.out)["errors"][0]["status"] == 503


async def test_a_file_without_an_event_is_not_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"type":"start"}\n')
    result = await tollbridge("replay", "--json", str(path))
    assert result.code == 1
    assert json.loads(result.out)["ended"] == "cut"


async def test_without_json_a_summary_is_printed(tmp_path: Path) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text('{"error": {"message": "\\u001b[31mno [bold]markup[/bold]", "code": "server_error"}}')
    result = await tollbridge("replay", str(RECORDINGS / "litellm.parallel-stream.sse"), str(odd))
    assert result.code == 0
    assert 'call   get_weather {"location": "Paris"}' in result.out
    assert "usage  input 11, output 7, total 18, cached 3, reasoning 2" in result.out
    assert "ended  finish (tool-calls)" in result.out
    assert "no [bold]markup[/bold]" in result.out
    assert "\x1b" not in result.out


@pytest.mark.parametrize("arguments", [(), ("--protocol", "smtp", "x.sse"), ("--nope", "x.sse")])
async def test_bad_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    result = await tollbridge("replay", *arguments)
    assert (result.code, result.out) == (2, "")
    assert "Error: " in result.err


@given(
    st.binary(max_size=400) | st.text(alphabet='{}[]",:data \n\\ud8', max_size=200).map(str.encode),
    st.sampled_from(["auto", *stream_names()]),
    st.sampled_from([None, 200, 400, 500]),
)
def test_any_bytes_give_one_line_of_json(body: bytes, protocol: str, status: int | None) -> None:
    decoder = decoder_for(protocol, status, {})
    line = to_json(describe_answer(answer_of([*decoder.feed(body), *decoder.close()])))
    assert list(json.loads(line)) == FIELDS[1:]


@pytest.mark.parametrize("depth", [10, 300, 900, 995, 100_000])
def test_deeply_nested_input_does_not_break_the_line(depth: int) -> None:
    arguments = "[" * depth + "]" * depth
    item = {
        "type": "function_call",
        "call_id": "c",
        "name": "f",
        "arguments": arguments,
        "status": "completed",
    }
    response = {"id": "r", "object": "response", "status": "completed", "output": [item]}
    decoder = decoder_for("openresponses", 200, {"content-type": "application/json"})
    line = to_json(
        describe_answer(answer_of([*decoder.feed(json.dumps(response).encode()), *decoder.close()]))
    )
    assert [call["name"] for call in json.loads(line)["tool_calls"]] == ["f"]


async def test_a_file_that_is_no_recording_is_an_error(tmp_path: Path) -> None:
    notes, image = tmp_path / "notes.txt", tmp_path / "image.png"
    notes.write_text("These are notes.\n")
    image.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    result = await tollbridge("replay", str(notes), str(image))
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines() == [
        f"Error: {path} is neither a recording nor a response of a known protocol. "
        "`--record` makes recordings."
        for path in (notes, image)
    ]


async def test_a_recorded_page_of_a_server_is_described(tmp_path: Path) -> None:
    (tmp_path / "page.sse").write_text("<html><title>Sign in</title></html>")
    (tmp_path / "page.headers").write_text("HTTP/1.1 200\ncontent-type: text/html\n")
    result = await tollbridge("replay", "--json", str(tmp_path / "page.sse"))
    assert result.code == 1
    assert "Sign in" in json.loads(result.out)["errors"][0]["message"]
