"""The extension in VS Code: its activation, the time before a request is sent, and the memory of the sidecar.

Runs the packaged extension in a real VS Code, in Chromium, and sends agent turns with a tool call each to the
embedded gateway. VS Code itself reports the activation. A line that is added to the packaged script records
when VS Code calls the provider; the gateway records when it receives the request. Both use the same clock.

On a busy machine every program waits for the processor: run it more than once, and compare the best runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from tests.vscode.browser import CHROMIUM, list_descendants, open_browser, take_screenshot
from tests.vscode.vscode_page import VSCodePage
from workshop import vsix
from workshop.workbench import Workbench

from bench.targets import at_most, exit_if_missed
from tollbridge.testing.server import Gateway

TURNS = int(os.environ.get("BENCH_TURNS", "20"))
# Milliseconds until the extension is active, and between the call of the provider and the request (median).
ACTIVATION_TARGET, SEND_TARGET = 150.0, 40.0
# Megabytes of the sidecar after `TURNS` agent turns.
MEMORY_TARGET = 95.0
# The file to which the probe writes the times of calls, in nanoseconds.
PROBE_FILE = "TOLLBRIDGE_BENCH_CALLS"
_CALL = re.compile(r"(async provideLanguageModelChatResponse\([^)]*\)\s*\{)")
_PROBE = rf'\1require("node:fs").appendFileSync(process.env.{PROBE_FILE},process.hrtime.bigint()+"\\n");'


def pack(folder: Path) -> Path:
    """Pack the extension with the probe."""
    vsix.bundle_script(minify=True)
    vsix.bundle_python([f"{sys.version_info.major}.{sys.version_info.minor}"])
    script = vsix.EXTENSION / "dist" / "extension.cjs"
    text, count = _CALL.subn(_PROBE, script.read_text())
    assert count == 1, count
    script.write_text(text)
    try:
        return vsix.pack(folder / "bench.vsix")
    finally:
        script.unlink()


async def measure(folder: Path) -> dict[str, float]:
    """Return the figures of one run in VS Code."""
    calls = folder / "calls"
    calls.touch()
    package = pack(folder)
    async with Gateway() as gateway:
        workbench = Workbench(
            folder,
            tree="strict",
            vsix=package,
            accounts={"Test": gateway.url},
            enable_chat=True,
            environment={PROBE_FILE: str(calls)},
            settings={
                "tollbridge.interpreter": sys.executable,
                "chat.byokUtilityModelDefault": "mainAgent",
                "remote.autoForwardPorts": False,
            },
        )
        async with workbench, open_browser(workbench) as page:
            vscode = VSCodePage(page, workbench)
            await vscode.open()
            await vscode.wait_for_model("Demo")
            activation = await read_activation(vscode)
            await vscode.run_command("Tollbridge: Restart")  # the first start of all compiles the modules
            for turn in range(TURNS):
                await vscode.send_message(f"use the tool list_dir on `{workbench.workspace}` again ({turn})")
                await page.locator(".interactive-request", has_text=f"({turn})").wait_for()
                answer = page.locator(".chat-most-recent-response:not(.chat-response-loading)")
                await answer.get_by_text("The tool list_dir answered").wait_for()
            memory = measure_sidecar(workbench.pid)
        requests = [each for each in gateway.requests if each.path == "/v1/responses"]
    starts = [int(line) / 1e9 for line in calls.read_text().split()]
    assert len(starts) == len(requests), (len(starts), len(requests))
    waits = [(request.received_at - start) * 1e3 for start, request in zip(starts, requests, strict=True)]
    return {
        "activation (ms)": activation,
        "provider to wire, median (ms)": statistics.median(waits),
        "provider to wire, best (ms)": min(waits),
        "provider to wire, first (ms)": waits[0],
        "requests": len(waits),
        f"sidecar after {TURNS} turns (MB)": memory,
    }


async def read_activation(vscode: VSCodePage) -> float:
    """Return the milliseconds of "Developer: Show Running Extensions"."""
    await vscode.run_command("Developer: Show Running Extensions")
    row = vscode.page.locator(".runtime-extensions-editor .monaco-list-row", has_text="Tollbridge").first
    await row.wait_for()
    text = await row.inner_text()
    await take_screenshot(vscode.page, "bench-running-extensions")
    await vscode.page.keyboard.press("Escape")  # the list covers the chat
    await row.wait_for(state="hidden")
    match = re.search(r"(\d+)\s*ms", text)
    assert match, text
    return float(match[1])


def measure_sidecar(pid: int) -> float:
    """Return the resident memory of the sidecar, in megabytes."""
    [sidecar] = [process for process, command in list_descendants(pid).items() if _is_sidecar(command)]
    return float(psutil.Process(sidecar.pid).memory_info().rss) / 1e6


def _is_sidecar(command: list[str]) -> bool:
    return any(Path(argument).name == "start.py" for argument in command)


def main() -> list[str]:
    if CHROMIUM is None:
        sys.exit("Chromium is not installed (Debian: apt-get install chromium).")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as users have it: what is compiled is cached
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        figures = asyncio.run(measure(Path(folder)))
    table = Table("VS Code", "figure")
    for name, value in figures.items():
        table.add_row(name, f"{value:.4g}")
    Console().print(table)
    activation, median, *_, memory = figures.values()
    return [
        *at_most("activation", activation, ACTIVATION_TARGET, " ms"),
        *at_most("provider to wire", median, SEND_TARGET, " ms"),
        *at_most("sidecar", memory, MEMORY_TARGET, " MB"),
    ]


if __name__ == "__main__":
    exit_if_missed(main())
