"""How long an editor waits for its greeting."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.frontends.stdio.stdio_client import SRC, Editor

from tollbridge.testing.server import Gateway

ROUNDS = 8
# Besides one and a half times what the bare interpreter takes.
ALLOWED_MS = 60
BARE = "import sys; sys.stdout.write('here\\n'); sys.stdout.flush(); sys.stdin.read()"


async def _until_first_line(*command: str) -> float:
    """Milliseconds the process worked until it said something. Time on the processor and not on the clock:
    others may be using the machine."""
    # Coverage would be measured along with it.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**clean, "PYTHONPATH": str(SRC)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    body = json.dumps(hello).encode()
    process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert await process.stdout.readline()
    worked = int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e6
    process.stdin.close()
    await process.stdout.read()
    await process.wait()
    return worked


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not tell")
@pytest.mark.timed
@pytest.mark.slow
async def test_the_greeting_is_answered_soon_after_the_interpreter_has_started() -> None:
    """The best of several rounds, taken in turns."""
    bare, greeted = [], []
    for _ in range(ROUNDS):
        bare.append(await _until_first_line(sys.executable, "-c", BARE))
        greeted.append(await _until_first_line(sys.executable, "-m", "tollbridge.sidecar"))
    assert min(greeted) <= 1.5 * min(bare) + ALLOWED_MS, (min(bare), min(greeted))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not list loaded libraries")
async def test_a_turn_loads_no_library_that_the_sidecar_does_not_use() -> None:
    """The C++ library comes with a compiled module of aiohttp's dependencies, and takes 1 MB."""
    message = {"role": 1, "content": [{"type": "text", "value": "hello"}]}
    async with Gateway() as gateway, Editor() as editor:
        await editor.initialize()
        account = {"baseUrl": gateway.url}
        await editor.request("chat", {"account": account, "model": "tollbridge/demo", "messages": [message]})
        libraries = Path(f"/proc/{editor.process.pid}/maps").read_text()
    assert "_http_parser" in libraries  # of aiohttp, which the turn has loaded
    assert "_frozenlist" not in libraries
