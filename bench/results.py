"""Store results of benchmarks in `bench/results`, from which `make pictures` draws the charts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def save(name: str, result: dict[str, Any]) -> None:
    """Store the result of a benchmark if BENCH_SAVE is set."""
    if os.environ.get("BENCH_SAVE"):
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def load(name: str) -> dict[str, Any]:
    """Return the stored result of a benchmark."""
    result: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return result
