"""Several processes that share a database, one of which is killed while it writes."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.stored import open_estimator
from tests.tokens.samples import MODEL, request, user

TIMES = 120

# Every request is a new conversation, calibrated before the next.
CALIBRATE = """
import sys
from tests.tokens.samples import hidden_count, request, user
from tollbridge.types.events import Usage
from pathlib import Path
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage.sqlite import SqliteStore

path, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = SqliteStore(Path(path))
estimator = HybridTokenEstimator(store.tokens)
print("ready", flush=True)
sys.stdin.readline()
for number in range(times):
    asked = request([user(f"{name} asks question {number} about the bridge. " * 5)])
    assert estimator.calibrate_request(asked, Usage(hidden_count(asked)))
    print(number, flush=True)
store.close()
"""


def start(path: Path, name: str, times: int) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CALIBRATE, str(path), name, str(times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{root}:{root / 'src'}"},
    )


def make_questions(name: str, number: int) -> list[str]:
    return [f"{name} asks question {number} about the bridge. " * 5]


def known(path: Path, name: str, times: int) -> int:
    """Return how many requests of a process are measured for another one."""
    questions = (request([user(text)]) for number in range(times) for text in make_questions(name, number))
    with open_estimator(path) as estimator:
        return sum(estimator.estimate_request(question).method == "actual" for question in questions)


@pytest.mark.io
def test_processes_that_calibrate_concurrently_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    processes = {name: start(path, name, TIMES) for name in ("one", "two", "three")}
    for process in processes.values():
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes.values():
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for name, process in processes.items():
        _, errors = process.communicate(timeout=100)
        assert (process.returncode, errors) == (0, ""), name
    for name in processes:
        assert known(path, name, TIMES) == TIMES
    with open_estimator(path) as estimator:
        (accuracy,) = estimator.accuracy()
    assert (accuracy.model, accuracy.requests) == (MODEL, TIMES * len(processes))


@pytest.mark.io
def test_a_process_killed_while_writing_leaves_a_usable_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for round_ in range(3):
        process = start(path, f"round {round_}", 1_000_000)
        assert process.stdin
        assert process.stdout
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdout.readline()
        done = [int(process.stdout.readline()) for _ in range(30 + round_)]
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        # Everything that it reported as done is in the file.
        assert known(path, f"round {round_}", len(done)) == len(done)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
