"""`tollbridge replay --json` for every recorded AI SDK stream; it detects the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tollbridge.cli.replay import replay

RECORDINGS = Path(__file__).parents[1] / "recordings" / "aisdk"


def _expected() -> dict[str, dict[str, Any]]:
    summaries = {}
    for index in sorted(RECORDINGS.glob("*/index.json")):
        for scenario in json.loads(index.read_text(encoding="utf-8"))["scenarios"]:
            for kind in ("full", "ui"):
                path = index.parent / scenario["files"].get(kind, "none")
                if path.exists() and path.stat().st_size:
                    summaries[str(path)] = scenario["expected"][kind]
    return summaries


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
def test_the_summary_matches_the_scenario(replays: dict[str, dict[str, Any]], path: str) -> None:
    summary, expected = replays[path], EXPECTED[path]
    assert summary["text"] == expected["text"]
    assert summary["reasoning"] == expected["reasoning"]
    assert (summary["finish_reason"], summary["ended"]) == (expected["finishReason"], expected["ended"])
    calls = [(call["call_id"], call["name"], call["input"]) for call in summary["tool_calls"]]
    pending = [(item["id"], item["name"], item["parsed"]) for item in expected.get("pendingToolInputs", ())]
    finals = [(call["id"], call["name"], call["input"]) for call in expected["toolCalls"]]
    assert calls == finals + [item for item in pending if item[2] is not None]
    assert [file["sha256"] for file in summary["files"]] == [file.get("sha256") for file in expected["files"]]
    assert [source["id"] for source in summary["sources"]] == [source["id"] for source in expected["sources"]]
    assert [item["value"] for item in summary["data"]] == [
        item.get("data", item) for item in expected["data"]
    ]
    total = (expected["usage"] or {}).get("total") if not path.endswith(".sse") else None
    assert (
        summary["usage"] and {name: summary["usage"][name] for name in ("input", "output", "total")}
    ) == total
