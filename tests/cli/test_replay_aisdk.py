"""`tollbridge replay --json` over every recorded AI SDK stream, which it recognises by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tollbridge.cli.replay import replay

RECORDINGS = Path(__file__).parents[1] / "recordings" / "aisdk"


def _expected() -> dict[str, dict[str, Any]]:
    found = {}
    for index in sorted(RECORDINGS.glob("*/index.json")):
        for scenario in json.loads(index.read_text(encoding="utf-8"))["scenarios"]:
            for kind in ("full", "ui"):
                path = index.parent / scenario["files"].get(kind, "none")
                if path.exists() and path.stat().st_size:
                    found[str(path)] = scenario["expected"][kind]
    return found


EXPECTED = _expected()


@pytest.fixture(scope="module")
def replays() -> dict[str, dict[str, Any]]:
    done = CliRunner().invoke(replay, ["--json", *EXPECTED], standalone_mode=False)
    assert done.exception is None
    lines = [json.loads(line) for line in done.stdout.split("\n") if line]
    return {line["file"]: line for line in lines}


def test_every_recording_is_replayed(replays: dict[str, dict[str, Any]]) -> None:
    assert len(replays) == len(EXPECTED) == 287  # three are empty: the SDK killed its own stream


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: "/".join(Path(path).parts[-2:]))
def test_it_comes_out_as_the_scenario_means_it(replays: dict[str, dict[str, Any]], path: str) -> None:
    found, meant = replays[path], EXPECTED[path]
    assert found["text"] == meant["text"]
    assert found["reasoning"] == meant["reasoning"]
    assert (found["finish_reason"], found["ended"]) == (meant["finishReason"], meant["ended"])
    calls = [(call["call_id"], call["name"], call["input"]) for call in found["tool_calls"]]
    pending = [(one["id"], one["name"], one["parsed"]) for one in meant.get("pendingToolInputs", ())]
    finals = [(call["id"], call["name"], call["input"]) for call in meant["toolCalls"]]
    assert calls == finals + [one for one in pending if one[2] is not None]
    assert [file["sha256"] for file in found["files"]] == [file.get("sha256") for file in meant["files"]]
    assert [source["id"] for source in found["sources"]] == [source["id"] for source in meant["sources"]]
    assert [one["value"] for one in found["data"]] == [one.get("data", one) for one in meant["data"]]
    total = (meant["usage"] or {}).get("total") if not path.endswith(".sse") else None
    assert (found["usage"] and {name: found["usage"][name] for name in ("input", "output", "total")}) == total
