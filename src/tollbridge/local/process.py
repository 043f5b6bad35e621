"""Start and stop the server process of a local model."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from tollbridge.local.fetch import SMOLLM2, LocalModelFailed, Progress, environment_without_keys, fetch


class ServerReady(msgspec.Struct, frozen=True, tag="listening"):
    """Written by the server process when it listens, as one line of JSON."""

    address: str


class ServerFailed(msgspec.Struct, frozen=True, tag="not_listening"):
    """Written by the server process if it cannot start, as one line of JSON."""

    reason: str


Announcement = ServerReady | ServerFailed


DEFAULT_CONTEXT = 8192
_ANNOUNCEMENT_DECODER: msgspec.json.Decoder[Announcement] = msgspec.json.Decoder(Announcement)
_MAGIC = b"GGUF"
_START_TIMEOUT = 300.0  # enough for a large model on a slow disk
_STOP_TIMEOUT = 5.0
_LOG_TAIL_SIZE = 4096
_INSTALL_ADVICE = "Install it: pip install 'tollbridge[local]'"
_PATH_ADVICE = "Specify the path of a GGUF file."

# The reason of the server process if the port is in use.
PORT_IN_USE = "port in use"
# A text in the reason or in the log of llama.cpp, and the message and advice for it.
_KNOWN_ERRORS: tuple[tuple[str, str, str], ...] = (
    (
        PORT_IN_USE,
        "Port {port} is already in use.",
        "Choose another with --port, or remove --port to use a free port.",
    ),
    (
        "failed to load model",
        "{model} is not a model that llama.cpp can load.",
        "Check that the file is complete and that llama.cpp supports its architecture.",
    ),
    (
        "failed to allocate",
        "Not enough memory for {model} with a context of {context} tokens.",
        "Choose a smaller --context or a smaller model.",
    ),
)


def is_installed() -> bool:
    """Whether the package that serves local models is installed (the extra `local`)."""
    return importlib.util.find_spec("xllamacpp") is not None


class LocalModel:
    """A model that is served on loopback inside an `async with` block.

        async with LocalModel() as local:
            async with OpenResponsesClient(local.url) as client:
                ...

    Args:
        path: A GGUF file. By default the small pinned model is used, and downloaded if needed.
        context: The size of the context in tokens.
        port: The port to listen on; 0 chooses a free port.
        progress: Called during the download.

    Attributes:
        model_id: The id of the model.
        url: The base URL; empty until the block is entered.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        context: int = DEFAULT_CONTEXT,
        port: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self._path = None if path is None else Path(path)
        self._context = context
        self._port = port
        self._progress = progress
        self._process: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None
        self.model_id = SMOLLM2.id if self._path is None else self._path.stem
        self.url = ""

    async def __aenter__(self) -> Self:
        if not is_installed():
            raise LocalModelFailed(
                "A local model needs the package xllamacpp, which is not installed.", _INSTALL_ADVICE
            )
        try:
            await self._start(await self._find_file())
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def wait(self) -> LocalModelFailed:
        """Wait until the server process exits, which it does only after a failure, and return the error."""
        if self._process is None:
            raise RuntimeError("the local model is not running")
        code = await self._process.wait()
        return LocalModelFailed(
            f"The local model stopped unexpectedly (exit code {code}).{self._last_error()}",
            "Start it again.",
        )

    async def _find_file(self) -> Path:
        if self._path is None:
            return await fetch(progress=self._progress)
        try:
            with self._path.open("rb") as file:
                start = file.read(len(_MAGIC))
        except OSError as error:
            raise LocalModelFailed(
                f"{self._path} cannot be read: {error.strerror or error}.", _PATH_ADVICE
            ) from error
        if start != _MAGIC:
            raise LocalModelFailed(
                f"{self._path} is not a GGUF file (it does not start with GGUF).",
                _PATH_ADVICE,
            )
        return self._path

    async def _start(self, path: Path) -> None:
        self._log = tempfile.TemporaryFile(prefix="tollbridge-local-")  # noqa: SIM115 (closed in _close)
        options = {"model": path, "id": self.model_id, "context": self._context, "port": self._port}
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tollbridge.local.server"),
            *(text for name, value in options.items() for text in (f"--{name}", str(value))),
            env=environment_without_keys(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C at the terminal must not stop the model
        )
        match await self._read_announcement(self._process):
            case ServerReady(address):
                self.url = f"{address}/v1"
            case ServerFailed(reason):
                await self._stop(self._process)  # completes the log
                raise self._make_error(reason)

    async def _read_announcement(self, process: asyncio.subprocess.Process) -> Announcement:
        if process.stdout is None:
            raise RuntimeError("the server process was started without a pipe")
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                line = await process.stdout.readline()
            return _ANNOUNCEMENT_DECODER.decode(line)
        except TimeoutError:
            return ServerFailed(f"it was not ready within {_START_TIMEOUT:.0f} s")
        except msgspec.DecodeError:
            return ServerFailed(f"its process ended with exit code {await process.wait()}")

    def _make_error(self, reason: str) -> LocalModelFailed:
        output = f"{reason}\n{self._read_log_tail()}"
        for pattern, message, advice in _KNOWN_ERRORS:
            if pattern in output:
                values = {"port": self._port, "model": self._path or self.model_id, "context": self._context}
                return LocalModelFailed(message.format(**values), advice)
        reason = reason.rstrip(".")
        if reason.startswith("ImportError"):
            return LocalModelFailed(f"The package xllamacpp cannot be imported ({reason}).", _INSTALL_ADVICE)
        return LocalModelFailed(
            f"The local model did not start: {reason}.{self._last_error()}",
            "Try again, or choose another model.",
        )

    def _last_error(self) -> str:
        errors = re.findall(r"^[\d.]+ E (.+)$", self._read_log_tail(), re.MULTILINE)
        return f" llama.cpp: {errors[-1].strip()}" if errors else ""

    def _read_log_tail(self) -> str:
        if self._log is None:
            return ""
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - _LOG_TAIL_SIZE))
        return self._log.read().decode(errors="replace")

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await self._stop(process)
        if self._log is not None:
            self._log.close()
            self._log = None
