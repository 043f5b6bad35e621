"""What the sidecar sends to the editor: responses and notifications, and the pauses of turns."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tollbridge.frontends.stdio import wire
from tollbridge.frontends.vscode.wire import Part
from tollbridge.protocols.jsonrpc import Fault, Id, encode_fault, encode_notification, encode_result
from tollbridge.transport.stdio import Stdio


class Output:
    """Encodes messages and adds them to the queue of the editor.

    `turns` have not ended; of these, `paused_turns` wait for the editor to read. All methods raise
    BrokenPipeError if the editor has closed its end of the pipe.
    """

    def __init__(self, stdio: Stdio) -> None:
        self.turns = 0
        self.paused_turns = 0
        self._stdio = stdio

    def respond(self, call_id: Id, result: Any) -> None:
        self._stdio.write(encode_result(call_id, result))

    def respond_with_fault(self, call_id: Id | None, fault: Fault) -> None:
        self._stdio.write(encode_fault(call_id, fault))

    async def report_parts(self, token: Id, parts: list[Part]) -> None:
        """Send parts of an answer. Waits while the editor has much to read.

        A turn that waits here does not read from its gateway.
        """
        if self._stdio.is_full:
            await self._wait_until_writable()
        progress = wire.ProgressParams(token, {"parts": parts})
        self._stdio.write(encode_notification("$/progress", progress))

    def report_wait(self, token: Id, wait: wire.Wait) -> None:
        if not self._stdio.is_full:  # an editor that does not read needs no news
            self._stdio.write(encode_notification("$/wait", wire.WaitParams(token, wait)))

    def report_models_changed(self, base_url: str) -> None:
        self._stdio.write(encode_notification("models/changed", {"baseUrl": base_url}))

    async def _wait_until_writable(self) -> None:
        import asyncio

        loop, writable = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(writable.set)

        self.paused_turns += 1
        try:
            while self._stdio.is_full:
                writable.clear()
                self._stdio.when_writable(wake)
                await writable.wait()
        finally:
            self.paused_turns -= 1
