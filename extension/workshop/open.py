"""A real VS Code with Tollbridge in it, to be looked at: `make vscode`. No key, no account, no network."""

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

1. Press F1 and run **Tollbridge: Set Up** once: it wakes VS Code's chat without an account.
2. Close the list of models and ask the agent on the right: `use the tool list_dir on {workspace}`

It is a scripted model that answers; `think`, `draw`, `slow long 500` and `fault:rate-limit` show more of it.
The local model is real and small: ask it in *Ask* mode. What an agent is told fits into its window, and takes
it a while to read.
"""


@asynccontextmanager
async def accounts(with_local: bool) -> AsyncIterator[dict[str, str]]:
    """The base URLs of what is served here, by name."""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway())
        served = {"Scripted model": gateway.url}
        if with_local:
            try:
                local = await stack.enter_async_context(LocalModel())
                served["Local model"] = local.url
            except BridgeError as error:
                print(f"Without the local model: {error.message}")
        yield served


async def show(port: int, with_local: bool, folder: Path) -> None:
    print(
        "Installing VS Code and packing the extension; the first time this takes a minute or two…", flush=True
    )
    packed = await asyncio.to_thread(pack)
    async with accounts(with_local) as served:
        workbench = await asyncio.to_thread(prepare, folder, port, served, packed)
        async with workbench:
            (workbench.workspace / "README.md").write_text(WELCOME.format(workspace=workbench.workspace))
            print(f"\n  {workbench.address}\n\nOpen it in a browser; Ctrl-C ends it.", flush=True)
            await asyncio.Event().wait()


def pack() -> Path:
    """For this Python alone, which is the one that will run it."""
    vsix.bundle_script(minify=True)
    vsix.bundle_python([f"{sys.version_info.major}.{sys.version_info.minor}"])
    return vsix.pack(vsix.REPOSITORY / "build" / "shown.vsix")


def prepare(folder: Path, port: int, served: dict[str, str], packed: Path) -> Workbench:
    settings = {"tollbridge.interpreter": sys.executable}
    return Workbench(folder, accounts=served, settings=settings, vsix=packed, port=port)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--no-local", action="store_true", help="without the local model")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tollbridge-vscode-", ignore_cleanup_errors=True) as folder:
        try:
            asyncio.run(show(chosen.port, not chosen.no_local, Path(folder)))
        except KeyboardInterrupt:
            print("\nClosed.")


if __name__ == "__main__":
    main()
