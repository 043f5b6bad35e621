"""Fixtures: Node with three versions of the SDK, to run a script once or as a server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.interop.node import installed
from workshop.node import NODE

HERE = Path(__file__).parent

RunNode = Callable[..., str]
StartNode = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="session")
def packages() -> Path:
    return installed(HERE)


@pytest.fixture(scope="session")
def run_node(packages: Path) -> RunNode:
    """Run a script of this folder with the SDK, and return its output."""

    def run(name: str, *arguments: str, stdin: str = "") -> str:
        command: list[str | Path] = [NODE, _beside(packages, name), *arguments]
        done = subprocess.run(
            command, input=stdin, cwd=packages, capture_output=True, text=True, encoding="utf-8", timeout=100
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


@pytest.fixture(scope="session")
def start_node(packages: Path) -> StartNode:
    """Run a script as a server while the block lasts, and yield the first line that it prints."""

    @contextmanager
    def start(name: str, *arguments: str) -> Iterator[str]:
        command: list[str | Path] = [NODE, _beside(packages, name), *arguments]
        with subprocess.Popen(command, cwd=packages, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().strip()
            finally:
                process.terminate()

    return start


def _beside(packages: Path, name: str) -> Path:
    """Copy the script next to the packages, where Node finds its imports."""
    return Path(shutil.copy(HERE / name, packages / name))
