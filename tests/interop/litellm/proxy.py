"""A real litellm proxy, in a separate environment that is created on first use."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp

_HERE = Path(__file__).resolve().parent
_BUILD = _HERE.parents[2] / "build"
_REQUIREMENTS = _HERE / "requirements.txt"
INSTALL_SECONDS = 900
START_SECONDS = 180
_STOP_SECONDS = 10


class Proxy(NamedTuple):
    url: str
    key: str
    model: str


def installed() -> Path:
    """Return the folder of an environment with the pinned packages. It is created atomically."""
    mark = hashlib.sha256(_REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    target = _BUILD / f"litellm-{mark}"
    if not (target / "installed").is_file():
        _BUILD.mkdir(exist_ok=True)
        # A virtual environment contains its own path, so create it in place, with a lock for other processes.
        with _locked(_BUILD / f"litellm-{mark}.lock"):
            if not (target / "installed").is_file():
                _install(target)
    return target


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(target: Path) -> None:
    venv.create(target, clear=True, with_pip=True)
    arguments = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
    done = subprocess.run(
        [target / "bin" / "python", *arguments, "--require-hashes", "-r", _REQUIREMENTS],
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"litellm cannot be installed:\n{done.stderr[-2000:]}")
    (target / "installed").touch()


def config(upstream: str, key: str, model: str) -> str:
    """Return the configuration of the proxy, as JSON, which is valid YAML."""
    return json.dumps(
        {
            "model_list": [
                {
                    "model_name": model,
                    "litellm_params": {"model": "lm_studio/mock", "api_base": upstream, "api_key": "none"},
                }
            ],
            "litellm_settings": {"drop_params": True, "telemetry": False, "num_retries": 0},
            "router_settings": {"disable_cooldowns": True},
            "general_settings": {"master_key": key},
        }
    )


@contextlib.asynccontextmanager
async def running(upstream: str, model: str = "bridge-test") -> AsyncIterator[Proxy]:
    """Run the proxy for an upstream, on a free port, with a random key."""
    home, key = installed(), f"sk-{secrets.token_hex(20)}"
    with tempfile.TemporaryDirectory(prefix="litellm-") as folder:
        settings = Path(folder) / "config.yaml"
        settings.write_text(config(upstream, key, model))
        port = _free_port()
        log = (Path(folder) / "log").open("wb")
        process = await asyncio.create_subprocess_exec(
            str(home / "bin" / "litellm"),
            *("--config", str(settings), "--host", "127.0.0.1", "--port", str(port)),
            cwd=folder,
            env=_environment(folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            proxy = Proxy(f"http://127.0.0.1:{port}/v1", key, model)
            await _ready(process, port, Path(folder) / "log")
            yield proxy
        finally:
            log.close()
            await _end(process)


def _environment(home: str) -> dict[str, str]:
    """Return the environment of the proxy: no keys, no prices from the network, no telemetry."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": home,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "NO_PROXY": "*",
        "PYTHONWARNINGS": "ignore",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def _ready(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < ends and process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                address = f"http://127.0.0.1:{port}/health/liveliness"
                async with session.get(address, timeout=aiohttp.ClientTimeout(total=2)) as reply:
                    if reply.status == 200:
                        return
            await asyncio.sleep(0.25)
    raise RuntimeError(f"litellm did not start:\n{log.read_text(errors='replace')[-2000:]}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
