"""Run the TypeScript unit tests of the extension with Node from PyPI; they need no VS Code."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

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
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_the_types_are_correct() -> None:
    vsix.install_packages()
    for project in (".", "page"):
        await _run(*node.command("node", "node_modules/typescript/bin/tsc", "--noEmit", "-p", project))


async def test_the_usage_page_in_the_package_is_built_from_the_current_sources(tmp_path: Path) -> None:
    vsix.install_packages()
    built = tmp_path / "usage.html"
    await _run(*node.command("node", "build.mjs", "--page", str(built)))
    packaged = SRC / "tollbridge/frontends/usage_page/usage.html"
    assert built.read_bytes() == packaged.read_bytes(), "run `make page`"


async def test_the_typescript_unit_tests_pass() -> None:
    vsix.install_packages()
    tests = sorted(str(path) for path in (vsix.EXTENSION / "test").glob("*.test.ts"))
    path = os.pathsep.join((str(SRC), os.environ.get("PYTHONPATH", "")))
    output = await _run(
        *node.command("node", "--test", "--test-concurrency=1", *tests),
        TOLLBRIDGE_PYTHON=sys.executable,
        PYTHONPATH=path,
    )
    passed = re.search(r"^ℹ pass (\d+)", output, re.MULTILINE)
    assert passed
    assert int(passed[1]) > 30


def test_the_extension_stays_small() -> None:
    sources = (vsix.EXTENSION / "src").glob("*.ts")
    lines = sum(len(path.read_text().splitlines()) for path in sources)
    assert lines <= 1600, "logic belongs in the engine, not in the extension"
