"""A client for the sidecar and one conversation with it: the code that another editor needs.

It uses the embedded gateway, so it needs no key and no network:

    python examples/sidecar_client.py
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from tollbridge.testing import Gateway

Report = Callable[[dict[str, Any]], None]


class Sidecar:
    """Starts the sidecar process, sends numbered requests, and dispatches responses and progress."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self._reports: dict[int, Report] = {}
        self._reader = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls) -> Sidecar:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "tollbridge.sidecar"]
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))

    async def request(self, method: str, params: dict[str, Any], report: Report | None = None) -> Any:
        number = len(self._responses) + 1
        self._responses[number] = asyncio.get_running_loop().create_future()
        if report:
            self._reports[number] = report
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return await self._responses[number]

    async def close(self) -> None:
        await self.request("shutdown", {})
        self._send({"jsonrpc": "2.0", "method": "exit"})
        await self._process.wait()
        await self._reader

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        if self._process.stdin:
            self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def _read(self) -> None:
        out = self._process.stdout
        while out and (header := await out.readline()):
            await out.readline()
            body = await out.readexactly(int(header.split(b":")[1]))
            self._dispatch(json.loads(body))

    def _dispatch(self, message: dict[str, Any]) -> None:
        if message.get("method") == "$/progress":
            progress = message["params"]
            for part in progress["value"]["parts"]:
                self._reports[progress["token"]](part)
        elif "error" in message:
            self._responses[message["id"]].set_exception(RuntimeError(message["error"]["message"]))
        elif "result" in message:
            self._responses[message["id"]].set_result(message["result"])


def show(part: dict[str, Any]) -> None:
    match part["type"]:
        case "text":
            print(part["value"], end="", flush=True)
        case "toolCall":
            print(f"[calls {part['name']} with {part['input']}]")


async def main() -> None:
    async with Gateway() as gateway:
        account = {"baseUrl": gateway.url}
        sidecar = await Sidecar.start()
        await sidecar.request("initialize", {"protocolVersion": 1, "client": {"name": "example"}})

        models = (await sidecar.request("models", {"account": account}))["models"]
        print("Models:", ", ".join(model["name"] for model in models))

        model = models[0]["model"]
        counts = await sidecar.request("count", {"model": model, "items": ["How long is this?"]})
        print("Tokens:", counts["counts"][0])

        question = {"role": 1, "content": [{"type": "text", "value": "Say something, slowly."}]}
        chat = {"account": account, "model": model, "messages": [question]}
        result = await sidecar.request("chat", chat, show)
        print(f"\n{result.get('finishReason')}: {result.get('usage')}")
        await sidecar.close()


if __name__ == "__main__":
    asyncio.run(main())
