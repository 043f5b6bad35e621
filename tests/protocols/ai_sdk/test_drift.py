"""Patch releases and previews changed the format, but decode to the same events.

`tests/recordings/aisdk/drift/record.mjs` recorded the streams. The expected result of each script is written
here, with the differences of releases that cannot express all of it.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tollbridge.cli.output import describe_answer
from tollbridge.cli.replay import replay_response

DRIFT = Path(__file__).parents[2] / "recordings" / "aisdk" / "drift"
RECORDED = sorted(path for path in DRIFT.glob("*/*") if path.is_file())
# The UI stream of these releases has no finish reason.
SILENT = ("5.0.0-alpha.12", "5.0.0-beta.14", "5.0.0")
# In these releases a call with invalid arguments is an error and not a call.
BROKEN_IS_ERROR = ("4.0.0", *SILENT)
# Before 5.0.0 a tool that throws is an error of the stream; 4.0.0 does not name the tool.
THROWS_IS_ERROR = ("4.0.0", "5.0.0-alpha.12")

CALL = {"call_id": "c1", "name": "client", "input": {"x": "1"}, "offered": True}
PICTURE = "b1ff9c8ea3a780bad09b346c423d2d0e46815926879b18e841d928376a946640"

EXPECTED: dict[str, dict[str, Any]] = {
    "plain-text": {"text": "Hello"},
    "split-surrogate": {"text": "ok 😀 done"},
    "reasoning": {"text": "ok", "reasoning": "let me"},
    "tool-streamed": {"calls": [CALL], "reason": "tool-calls"},
    "tool-parallel": {
        "calls": [CALL, {**CALL, "call_id": "c2", "input": {"x": "2"}}],
        "reason": "tool-calls",
    },
    "tool-no-final": {"calls": [CALL], "reason": "tool-calls"},
    "tool-executed": {"calls": [{**CALL, "name": "server", "offered": False}], "reason": "tool-calls"},
    "tool-throws": {"calls": [{**CALL, "name": "broken", "offered": False}], "reason": "tool-calls"},
    "tool-invalid": {"calls": [{**CALL, "input": '{"x":', "offered": False}], "reason": "tool-calls"},
    "tool-provider": {"text": "found", "calls": [{**CALL, "name": "web", "offered": False}]},
    "multi-step": {"text": "one two", "calls": [{**CALL, "name": "server", "offered": False}], "usage": 26},
    "file": {"text": "x", "files": [PICTURE]},
    "source": {"text": "x", "sources": ["s1"]},
    "error-string": {"text": "par", "errors": ["plain failure"], "reason": "error"},
    "error-object": {"text": "par", "errors": ["Overloaded"], "reason": "error"},
}


def expected_result(path: Path) -> dict[str, Any]:
    script, release = path.name.split(".")[0], path.parent.name
    nothing: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "files": [], "sources": []}
    expected = {**nothing, "errors": [], "reason": "stop", "usage": 13, "ended": "finish", **EXPECTED[script]}
    if path.suffix == ".sse":
        expected |= {"usage": None, **({"reason": None} if release in SILENT else {})}
    if script == "tool-invalid" and release in BROKEN_IS_ERROR:
        expected |= {"calls": [], "errors": 1}
    if script == "tool-throws" and release in THROWS_IS_ERROR:
        expected |= {"calls": [{**CALL, "name": "broken", "offered": release == "4.0.0"}], "errors": 1}
    return expected


def decoded_result(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    summary = describe_answer(replay_response(path, "auto"))
    errors = [error["message"] for error in summary["errors"]]
    return {
        "text": summary["text"],
        "reasoning": summary["reasoning"],
        "calls": summary["tool_calls"],
        "files": [file["sha256"] for file in summary["files"]],
        "sources": [source["id"] for source in summary["sources"]],
        "errors": len(errors) if isinstance(expected["errors"], int) else errors,
        "reason": summary["finish_reason"],
        "usage": summary["usage"] and summary["usage"]["total"],
        "ended": summary["ended"],
    }


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_release_decodes_to_the_same_events(path: Path) -> None:
    expected = expected_result(path)
    assert decoded_result(path, expected) == expected


def test_seven_releases_were_recorded() -> None:
    assert len(RECORDED) == 200
    assert {path.parent.name for path in RECORDED} == {"4.0.0", *SILENT, "5.0.277", "6.0.50", "7.0.0"}
    assert {path.name.split(".")[0] for path in RECORDED} == set(EXPECTED)


def test_the_image_is_the_one_of_the_script() -> None:
    script = (DRIFT / "record.mjs").read_text(encoding="utf-8")
    text = script.split("const PNG =\n  '")[1].split("'")[0]
    assert hashlib.sha256(b64decode(text)).hexdigest() == PICTURE
