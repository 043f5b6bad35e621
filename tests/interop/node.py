"""Install the npm packages of a lock file once, and run modules with the Node of the project."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from workshop.node import NODE, command, environment

_HERE = Path(__file__).resolve().parent
_BUILD = _HERE.parents[1] / "build"
_INPUTS = ("package.json", "package-lock.json", ".npmrc")
_INSTALL_SECONDS = 300
_RUN_SECONDS = 60


def installed(source: Path = _HERE) -> Path:
    """Return a folder with the packages of `source`'s lock file, after installing them if needed.

    The name of the folder depends on the lock file, so a changed lock file gets a new folder. The folder is
    created atomically, so that several test processes can do this at the same time.
    """
    names = [name for name in _INPUTS if (source / name).is_file()]
    mark = hashlib.sha256(b"".join((source / name).read_bytes() for name in names)).hexdigest()[:16]
    target = _BUILD / f"node-{mark}"
    if target.is_dir():
        return target
    _BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_BUILD, prefix="node-", ignore_cleanup_errors=True) as folder:
        output_folder = Path(folder) / "made"
        output_folder.mkdir()
        for name in names:
            shutil.copy(source / name, output_folder)
        _install(output_folder)
        try:
            output_folder.rename(target)
        except OSError:
            if not target.is_dir():  # another process has created it
                raise
    return target


def _install(folder: Path) -> None:
    done = subprocess.run(
        command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"npm ci failed:\n{done.stderr[-2000:]}")


async def run_script(script: bytes, task: Any, folder: Path) -> Any:
    """Run a module with `task` as its argument, and return its output, decoded from JSON."""
    # A module on standard input resolves its imports from the working directory.
    process = await asyncio.create_subprocess_exec(
        NODE,
        "--input-type=module",
        "-",
        json.dumps(task),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_RUN_SECONDS):
            out, err = await process.communicate(script)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"Node ended with {process.returncode}:\n{err.decode()[-2000:]}")
    return json.loads(out)
