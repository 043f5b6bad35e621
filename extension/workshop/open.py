"""Open VS Code with Tollbridge and demo models in the browser (`make vscode`). No key or account needed."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tollbridge.local.process import LocalModel
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import BridgeError
from workshop import vsix
from workshop.workbench import Workbench

PORT = 8777
WELCOME = """# Tollbridge

1. Press F1 and run **Tollbridge: Set Up** once. It activates VS Code's chat without an account.
2. Close the list of models and send to the agent on the right: `use the tool list_dir on {workspace}`

The answers come from a scripted model. Try also `think`, `draw`, `slow long 500` and `fault:rate-limit`.
The local model is a small language model. Use it in *Ask* mode: the prompt of an agent fits into its context
window, but takes it a long time to read.
"""


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


async def open_vscode(port: int, with_local: bool, folder: Path) -> None:
    print(
        "Installing VS Code and packing the extension (the first time takes one or two minutes)…", flush=True
    )
    package = await asyncio.to_thread(pack)
    async with serve_models(with_local) as base_urls:
        workbench = await asyncio.to_thread(prepare, folder, port, base_urls, package)
        async with workbench:
            (workbench.workspace / "README.md").write_text(WELCOME.format(workspace=workbench.workspace))
            print(
                f"\n  {workbench.address}\n\nOpen this address in a browser. Press Ctrl-C to stop.",
                flush=True,
            )
            await asyncio.Event().wait()


def pack() -> Path:
    """Pack the extension for the running version of Python only."""
    vsix.bundle_script(minify=True)
    vsix.bundle_python([f"{sys.version_info.major}.{sys.version_info.minor}"])
    return vsix.pack(vsix.REPOSITORY / "build" / "demo.vsix")


def prepare(folder: Path, port: int, base_urls: dict[str, str], package: Path) -> Workbench:
    settings = {"tollbridge.interpreter": sys.executable}
    return Workbench(folder, accounts=base_urls, settings=settings, vsix=package, port=port)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Open a VS Code with Tollbridge and demo models in the browser."
    )
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--no-local", action="store_true", help="do not start the local model")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tollbridge-vscode-", ignore_cleanup_errors=True) as folder:
        try:
            asyncio.run(open_vscode(options.port, not options.no_local, Path(folder)))
        except KeyboardInterrupt:
            print("\nStopped.")


if __name__ == "__main__":
    main()
