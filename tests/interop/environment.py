"""Servers from PyPI: a virtual environment for each, created on first use, and its process."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import pytest

_BUILD = Path(__file__).resolve().parents[2] / "build"
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--require-hashes")
INSTALL_SECONDS = 900
START_SECONDS = 180
_STOP_SECONDS = 10


# --- Installing ---


def require_python(minimum: tuple[int, int]) -> str:
    """Return the path of a Python of at least this version. Skip the test if there is none."""
    python = _find_python(minimum)
    if python is None:
        version = ".".join(map(str, minimum))
        pytest.skip(f"No Python {version} or later on the PATH or in ~/.pyenv: this server was NOT tested.")
    return python


def _find_python(minimum: tuple[int, int]) -> str | None:
    if sys.version_info >= minimum:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(15, minimum[1] - 1, -1)]
    on_path = [path for name in names if (path := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    installed = [str(path) for name in names for path in sorted(pyenv.glob(f"*/bin/{name}"))]
    # A shim of pyenv is on the PATH although its version may not be selected, so each is tried.
    return next((path for path in (*on_path, *installed) if _runs(path)), None)


def _runs(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", "import venv"], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def install(requirements: Path, python: str = sys.executable) -> Path:
    """Return the folder of a virtual environment with pinned packages, after creating it if needed.

    The name of the folder depends on the requirements, so changed requirements get a new folder.
    """
    identity = requirements.read_bytes() + python.encode() + sys.version.encode()
    name = f"{requirements.parent.name}-{hashlib.sha256(identity).hexdigest()[:16]}"
    target = _BUILD / name
    if not (target / "installed").is_file():
        _BUILD.mkdir(exist_ok=True)
        # A virtual environment contains its own path, so create it in place, with a lock for other processes.
        with _locked(_BUILD / f"{name}.lock"):
            if not (target / "installed").is_file():
                _create(target, requirements, python)
    return target


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _create(target: Path, requirements: Path, python: str) -> None:
    commands: tuple[list[str | Path], ...] = (
        [python, "-m", "venv", "--clear", target],
        [target / "bin" / "python", *_PIP, "-r", requirements],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if done.returncode:
            raise RuntimeError(f"{requirements.parent.name} cannot be installed:\n{done.stderr[-2000:]}")
    (target / "installed").touch()


# --- Running ---


@contextlib.asynccontextmanager
async def running(
    command: Callable[[int, Path], Sequence[str | Path]],
    ready: str,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[str]:
    """Run a server on a free loopback port, in an empty folder that is its home, and yield its address.

    Args:
        command: Returns the command for a port and the folder.
        ready: The path that answers with a status below 500 when the server has started.
        environment: Variables in addition to PATH and HOME. The server gets no others, and so no keys.
    """
    with tempfile.TemporaryDirectory(prefix="interop-") as name:
        folder, port = Path(name), _free_port()
        address = f"http://127.0.0.1:{port}"
        with (folder / "output.txt").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *map(str, command(port, folder)),
                cwd=folder,
                env=_environment(folder, port, environment or {}),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                await _wait_until_ready(process, address + ready, folder / "output.txt")
                yield address
            finally:
                await _stop(process)


def _environment(folder: Path, port: int, more: Mapping[str, str]) -> dict[str, str]:
    own = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "NO_PROXY": "*",
        "PYTHONWARNINGS": "ignore",
    }
    return {**own, **{name: value.replace("{port}", str(port)) for name, value in more.items()}}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def _wait_until_ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
        while time.monotonic() < deadline and process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(url) as reply:
                    if reply.status < 500:
                        return
            await asyncio.sleep(0.25)
    raise RuntimeError(f"The server did not start:\n{log.read_text(errors='replace')[-2000:]}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
