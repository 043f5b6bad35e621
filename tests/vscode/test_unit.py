"""The extension's own tests and its types, with the Node that comes from PyPI; no VS Code is needed."""

from __future__ import annotations

import asyncio
import os
import re
import sys

import pytest
from workshop import node, vsix

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SRC = vsix.REPOSITORY / "src"


async def _run(*command: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=vsix.EXTENSION,
        env={**node.environment(), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_the_types_are_right() -> None:
    vsix.install_packages()
    await _run(*node.command("node", "node_modules/typescript/bin/tsc", "--noEmit"))


async def test_the_parts_work_without_an_editor() -> None:
    vsix.install_packages()
    tests = sorted(str(path) for path in (vsix.EXTENSION / "test").glob("*.test.ts"))
    path = os.pathsep.join((str(SRC), os.environ.get("PYTHONPATH", "")))
    told = await _run(
        *node.command("node", "--test", "--test-concurrency=1", *tests),
        TOLLBRIDGE_PYTHON=sys.executable,
        PYTHONPATH=path,
    )
    passed = re.search(r"^ℹ pass (\d+)", told, re.MULTILINE)
    assert passed
    assert int(passed[1]) > 30


def test_the_extension_stays_small() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in (vsix.EXTENSION / "src").glob("*.ts"))
    assert lines <= 1300, "if it grows, something belongs on the other side"
