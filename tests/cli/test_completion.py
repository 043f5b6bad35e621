"""The lines of docs/terminal.md for shell completion, in the real shells."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.cli.cli_process import tollbridge
from tests.cli.tmux import needs_tmux, tmux

from tollbridge.testing.server import Gateway

DOCUMENT = (Path(__file__).parents[2] / "docs" / "terminal.md").read_text()
SHELLS = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config", "-i"),
}


def documented_line(shell: str) -> str:
    (line,) = re.findall(rf"`([^`]*_TOLLBRIDGE_COMPLETE={shell}_source[^`]*)`", DOCUMENT)
    return str(line).replace("\\|", "|")


@needs_tmux
@pytest.mark.timed
@pytest.mark.parametrize("shell", SHELLS)
async def test_a_shell_completes_commands_options_and_models(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (Debian: apt install {shell})")
    (tmp_path / "tollbridge").write_text(f'#!/bin/sh\nexec {sys.executable} -m tollbridge "$@"\n')
    (tmp_path / "tollbridge").chmod(0o755)
    env = {"TOLLBRIDGE_CATALOG_DIR": str(tmp_path / "lists"), "HOME": str(tmp_path), "PS1": "$ "}
    async with Gateway() as gateway:
        await tollbridge("models", "--base-url", gateway.url, env=env)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    async with tmux((100, 24), *SHELLS[shell], env={**env, **path}) as window:
        await window.type("echo started")
        await window.press("Enter")
        await window.expect("\nstarted")
        if shell == "zsh":
            await window.type("autoload -U compinit; compinit -D")
            await window.press("Enter")
        await window.type(documented_line(shell))
        await window.press("Enter")
        await window.type("echo ready")
        await window.press("Enter")
        await window.expect("\nready")
        await window.type("tollbridge doc")
        await window.press("Tab")
        await window.expect("tollbridge doctor")
        await window.type("--back" if shell != "bash" else " --back")
        await window.press("Tab")
        await window.expect("--backend")
        await window.press("C-u")
        await window.type("tollbridge ask -m tollbridge/pl")
        await window.press("Tab")
        await window.expect("tollbridge ask -m tollbridge/plain")
