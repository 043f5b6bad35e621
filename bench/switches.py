"""How often one turn of the sidecar switches between files, and how many threads it uses.

The server of the sidecar runs in threads of this process, against the embedded gateway. A switch is a call of
a function of Tollbridge, or the resumption of a coroutine, from another file of Tollbridge; what other
packages call in between does not count. The second turn of a chat with thinking is measured: the first one
opens the connection and loads modules. The list shows which files call which, most often first.

    python -m bench.switches [PAIRS]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import tollbridge
from bench.targets import at_most, exit_if_missed

SOURCE = str(Path(tollbridge.__file__).parent) + os.sep
# Of one turn, at most: about 600 switches, and more if the answer arrives in more reads.
SWITCHES, THREADS = 640, 5
MODEL = "tollbridge/demo"
PROMPT = {"role": 1, "content": [{"type": "text", "value": "Hello"}]}
# Seconds after an answer in which the usage is written and the estimator learns.
SETTLING = 1.0


class SwitchCounter:
    """A profile function for `threading.setprofile` that counts the calls between files."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        callee = frame.f_code.co_filename
        if event != "call" or not callee.startswith(SOURCE):
            return
        caller: FrameType | None = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != callee:
            files = (caller.f_code.co_filename, callee)
            source, target = (name.removeprefix(SOURCE) for name in files)
            self.pairs[source, target] += 1


class Editor:
    """A client of a server that reads from and writes to pipes."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._input = os.fdopen(read_fd, "rb")
        self._output = os.fdopen(write_fd, "wb", buffering=0)
        self._next_id = 0

    async def request(self, method: str, params: Any) -> tuple[Any, list[dict[str, Any]]]:
        """Send a request. Returns its result and the parts that were reported before it."""
        self._next_id += 1
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        body = json.dumps(message).encode()
        self._output.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        parts: list[dict[str, Any]] = []
        while (answer := await asyncio.to_thread(self._read)).get("id") != self._next_id:
            if answer["method"] == "$/progress":
                parts += answer["params"]["value"]["parts"]
        return answer["result"], parts

    def close(self) -> None:
        self._output.close()

    def _read(self) -> dict[str, Any]:
        length = int(self._input.readline().removeprefix(b"Content-Length: "))
        self._input.readline()
        message: dict[str, Any] = json.loads(self._input.read(length))
        return message


def _start_server(counter: Callable[[FrameType, str, Any], None]) -> tuple[Editor, threading.Thread]:
    from tollbridge.frontends.stdio.server import Server
    from tollbridge.transport.stdio import Stdio

    server_input, client_output = os.pipe()
    client_input, server_output = os.pipe()
    threading.setprofile(counter)  # for the threads of the server, not for this one
    server = Server(Stdio(server_input, server_output))
    thread = threading.Thread(target=server.serve, name="main", daemon=True)
    thread.start()
    return Editor(client_input, client_output), thread


async def measure_turn() -> tuple[Counter[tuple[str, str]], list[str]]:
    """Return the switches of the second turn of a chat by caller and callee, and the names of its threads."""
    from tollbridge.testing.server import Gateway

    counter = SwitchCounter()
    threads_before = set(threading.enumerate())
    async with Gateway(scenario="reasoning-summary") as gateway:
        editor, server = _start_server(counter)
        messages: list[Any] = [PROMPT]
        account = {"baseUrl": gateway.url}
        await editor.request("initialize", {"protocolVersion": 1})
        await editor.request("models", {"account": account})
        for _ in range(2):
            await asyncio.sleep(SETTLING)
            counter.pairs.clear()
            chat = {"account": account, "model": MODEL, "messages": messages, "conversation": "bench"}
            _, parts = await editor.request("chat", chat)
            assert any(part["type"] == "thinking" for part in parts)
            messages += [{"role": 2, "content": parts}, PROMPT]
        await asyncio.sleep(SETTLING)
        pairs = counter.pairs.copy()
        threads = [thread.name for thread in threading.enumerate() if thread not in threads_before]
        threading.setprofile(None)
        editor.close()
        await asyncio.to_thread(server.join)
    return pairs, [name for name in threads if not name.startswith("asyncio_")]


def main(pair_count: int = 40) -> list[str]:
    """Print the figures. Returns the missed targets."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TOLLBRIDGE_DATA_DIR=folder, TOLLBRIDGE_CACHE_DIR=folder)
        pairs, threads = asyncio.run(measure_turn())
    for (caller, callee), count in pairs.most_common(pair_count):
        print(f"{count:5}  {caller} → {callee}")
    print(f"{pairs.total():5}  switches between files in one turn")
    print(f"{len(threads):5}  threads: {', '.join(threads)}")
    missed = at_most("switches between files", pairs.total(), SWITCHES)
    return missed + at_most("threads", len(threads), THREADS)


if __name__ == "__main__":
    exit_if_missed(main(*map(int, sys.argv[1:])))
