"""How long an editor waits for its greeting."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from tests.sidecar.editor import SRC

ROUNDS = 10
# Besides one and a half times what the bare interpreter takes.
ALLOWED_MS = 60


async def _timed(*command: str, until_line: bool) -> float:
    # Coverage would be measured along with it.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    started = time.perf_counter()
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
    if until_line:
        process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        assert await process.stdout.readline()
        took = time.perf_counter() - started
    process.stdin.close()
    await process.stdout.read()
    await process.wait()
    return 1000 * (took if until_line else time.perf_counter() - started)


async def test_the_greeting_is_answered_soon_after_the_interpreter_has_started() -> None:
    """The best of several rounds, taken in turns: others may be using the machine."""
    bare, greeted = [], []
    for _ in range(ROUNDS):
        bare.append(await _timed(sys.executable, "-c", "pass", until_line=False))
        greeted.append(await _timed(sys.executable, "-m", "tollbridge.sidecar", until_line=True))
    assert min(greeted) <= 1.5 * min(bare) + ALLOWED_MS
