"""The server process of a local model: a real llama.cpp, and errors at the start."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import psutil
import pytest

from tollbridge.local.process import SMOLLM2, LocalModel, LocalModelFailed

slow = pytest.mark.slow  # these load the real model, and download it if it is missing


async def failure(model: LocalModel) -> LocalModelFailed:
    with pytest.raises(LocalModelFailed) as caught:
        async with model:
            pass
    assert children() == []
    return caught.value


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "tollbridge.local.server" in child.cmdline()]


async def test_a_missing_file_is_reported_with_its_path(tmp_path: Path) -> None:
    error = await failure(LocalModel(tmp_path / "none.gguf"))
    assert error.message == f"{tmp_path / 'none.gguf'} cannot be read: No such file or directory."


async def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    assert "Is a directory" in (await failure(LocalModel(tmp_path))).message


async def test_a_file_of_another_format_is_rejected_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear model")
    error = await failure(LocalModel(tmp_path / "letter.txt"))
    assert "is not a GGUF file" in error.message


async def test_a_corrupt_model_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\x00" * 1000)
    error = await failure(LocalModel(tmp_path / "broken.gguf"))
    assert error.message == f"{tmp_path / 'broken.gguf'} is not a model that llama.cpp can load."


@pytest.mark.io
def test_the_server_process_starts_without_a_warning() -> None:
    run = [sys.executable, "-W", "error", "-m", "tollbridge.local.server", "--help"]
    result = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


async def test_a_missing_package_is_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    error = await failure(LocalModel())
    assert error.advice == "Install it: pip install 'tollbridge[local]'"


@slow
async def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert (await failure(LocalModel(port=port))).message == f"Port {port} is already in use."


@slow
async def test_the_model_answers_on_loopback_and_exits_afterwards() -> None:
    async with LocalModel(context=1024) as local, aiohttp.ClientSession() as session:
        assert local.url.startswith("http://127.0.0.1:")
        async with session.get(f"{local.url}/models") as reply:
            listed = await reply.json()
        assert [model["id"] for model in listed["data"]] == [SMOLLM2.id] == [local.model_id]
        question = {"model": local.model_id, "input": "Say hello.", "max_output_tokens": 8}
        async with session.post(f"{local.url}/responses", json=question) as reply:
            answer = await reply.json()
        assert answer["output"][0]["content"][0]["text"]
        assert answer["usage"]["output_tokens"] <= 8
    assert children() == []


@slow
async def test_a_crash_of_the_server_is_reported() -> None:
    async with LocalModel(context=512) as local:
        children()[0].kill()
        async with asyncio.timeout(5):
            error = await local.wait()
    assert error.message == "The local model stopped unexpectedly (exit code -9)."


@slow
async def test_ctrl_c_does_not_reach_the_server() -> None:
    async with LocalModel(context=512):
        assert os.getpgid(children()[0].pid) != os.getpgid(0)


PARENT = """
import asyncio, os
from tollbridge.local.process import LocalModel
async def main():
    async with LocalModel(context=512):
        print("ready", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@slow
@pytest.mark.io
def test_the_server_exits_with_its_parent_even_if_the_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        (server,) = psutil.Process(parent.pid).children()
        parent.send_signal(signal.SIGKILL)
        assert psutil.wait_procs([server], timeout=5)[1] == []
