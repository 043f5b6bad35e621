"""Open VS Code with Tollbridge and demo models in the browser (`make vscode`). No key or account needed."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tollbridge.local.process import LocalModel
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import BridgeError
from workshop import vsix
from workshop.code_server import Tree, entry_point
from workshop.workbench import Workbench

Result = TypeVar("Result")

PORT = 8777
# The VS Code that users have.
TREE: Tree = "strict"
SETTINGS = {
    "tollbridge.command": [sys.executable, "-m", "tollbridge.sidecar"],
    # The demo model also names conversations and summarises progress.
    "chat.byokUtilityModelDefault": "mainAgent",
    # VS Code would offer every port that a program opens, in notifications over the chat.
    "remote.autoForwardPorts": False,
}
WELCOME = """# Tollbridge

Send this to the agent on the right: `Fix the bug in tolls.py`

The answers come from a scripted model, but the steps are real: it reads the file, edits it and runs its
examples, after you have pressed **Allow**. Try also `think`, `draw`, `slow long 500` and `fault:rate-limit`.

The local model is a small language model. Use it in *Ask* mode: the prompt of an agent fits into its context
window, but takes it a long time to read.
"""

BUG = '''"""The tolls of a bridge."""


def toll(axles: int) -> int:
    """Return the toll in euros: two for each axle.

    >>> toll(3)
    6
    """
    return 2 + axles  # should be: return 2 * axles
'''


@asynccontextmanager
async def serve_models(with_local: bool) -> AsyncIterator[dict[str, str]]:
    """Serve the demo models; yield their base URLs by account name."""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway())
        base_urls = {"Scripted model": gateway.url}
        if with_local:
            try:
                local = await stack.enter_async_context(LocalModel())
                base_urls["Local model"] = local.url
            except BridgeError as error:
                print(f"The local model is not available: {error.message}")
        yield base_urls


class Steps:
    """Shows the progress of the steps that run at the same time: a table in a terminal, or else lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)

    async def run(self, name: str, step: Awaitable[Result]) -> Result:
        task = self.progress.add_task(name, total=1)
        if not self._console.is_terminal:
            self._console.print(f"{name}…")
        result = await step
        self.progress.update(task, completed=1)
        if not self._console.is_terminal:
            self._console.print(f"{name}: done ({self._seconds(task):.0f} s)")
        return result

    def _seconds(self, task: TaskID) -> float:
        return next(item.elapsed or 0.0 for item in self.progress.tasks if item.id == task)


async def open_vscode(port: int, with_local: bool, folder: Path) -> None:
    console = Console()
    steps = Steps(console)
    async with AsyncExitStack() as stack:
        with steps.progress:
            package, base_urls, _ = await asyncio.gather(
                steps.run("Packing the extension", asyncio.to_thread(pack)),
                steps.run("Starting the models", stack.enter_async_context(serve_models(with_local))),
                steps.run("Installing VS Code", asyncio.to_thread(entry_point, TREE)),
            )
            # The chat is enabled: the first question is answered without a dialog, however early it is.
            workbench = Workbench(
                folder,
                tree=TREE,
                accounts=base_urls,
                settings=SETTINGS,
                vsix=package,
                enable_chat=True,
                port=port,
            )
            await steps.run("Starting VS Code", stack.enter_async_context(workbench))
        welcome = workbench.workspace / "README.md"
        welcome.write_text(WELCOME)
        (workbench.workspace / "tolls.py").write_text(BUG)
        print(f"\n  {address(workbench, welcome)}\n\nOpen this address in a browser. Press Ctrl-C to stop.")
        sys.stdout.flush()
        await asyncio.Event().wait()


def address(workbench: Workbench, file: Path) -> str:
    """Return the URL that opens the workspace with a file in it."""
    uri = f"vscode-remote://127.0.0.1:{workbench.port}{file}"
    return f"{workbench.address}&payload={quote(json.dumps([['openFile', uri]]))}"


def pack() -> Path:
    """Pack the extension without the engine: the demo uses the one of the checkout."""
    vsix.bundle_script(minify=True)
    return vsix.pack(vsix.REPOSITORY / "build" / "demo.vsix", engine=False)


async def run_until_signal(port: int, with_local: bool, folder: Path) -> None:
    """Run the demo until Ctrl-C or SIGTERM, and end everything that was started."""
    running = asyncio.ensure_future(open_vscode(port, with_local, folder))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with suppress(asyncio.CancelledError):
        await running
    print("\nStopped.")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Open a VS Code with Tollbridge and demo models in the browser."
    )
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--no-local", action="store_true", help="do not start the local model")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tollbridge-vscode-", ignore_cleanup_errors=True) as folder:
        asyncio.run(run_until_signal(options.port, not options.no_local, Path(folder)))


if __name__ == "__main__":
    main()
