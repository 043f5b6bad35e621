"""A local model's life: start the server process, know where it listens, end it."""

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

# SECTION What the process that holds the model says of itself: one line of JSON.


class ServerReady(msgspec.Struct, frozen=True, tag="listening"):
    address: str


class ServerFailed(msgspec.Struct, frozen=True, tag="not_listening"):
    reason: str


Announcement = ServerReady | ServerFailed


DEFAULT_CONTEXT = 8192
_ANNOUNCEMENTS: msgspec.json.Decoder[Announcement] = msgspec.json.Decoder(Announcement)
_MAGIC = b"GGUF"
_LOADING_TIMEOUT = 300.0  # a large model on a slow disk
_ENDING_TIMEOUT = 5.0
_LOG_TAIL = 4096
_INSTALL = "Install it: pip install xllamacpp"
_GIVE = "Give the path of a GGUF file."

# What llama.cpp writes to its log, and what it means to a person.
_LOG_SAYS: tuple[tuple[str, str, str], ...] = (
    ("couldn't bind", "Port {port} is taken.", "Choose another with --port, or leave it out for a free one."),
    (
        "failed to load model",
        "{model} is not a model that llama.cpp can load.",
        "Check that the file is whole and of an architecture that llama.cpp knows.",
    ),
    (
        "failed to allocate",
        "There is not enough memory for {model} with a context of {context} tokens.",
        "Choose a smaller --context or a smaller model.",
    ),
)


def is_installed() -> bool:
    """Whether this Python can serve a local model at all (the extra `local`)."""
    return importlib.util.find_spec("xllamacpp") is not None


class LocalModel:
    """A model served on loopback for as long as the block lasts.

        async with LocalModel() as local:
            async with OpenResponsesClient(local.url) as client:
                ...

    Without a path the small pinned model is used, fetched first where needed; `progress` is told how far
    that is. Port 0 takes a free one.
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
        self.url = ""  # known once it is started

    async def __aenter__(self) -> Self:
        if not is_installed():
            raise LocalModelFailed(
                "A local model needs the package xllamacpp, which is not installed.", _INSTALL
            )
        try:
            await self._start(await self._find())
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def wait(self) -> LocalModelFailed:
        """Wait until the server ends by itself, which it should not, and say so."""
        if self._process is None:
            raise RuntimeError("the local model is not running")
        code = await self._process.wait()
        return LocalModelFailed(
            f"The local model stopped by itself (exit code {code}).{self._last_complaint()}",
            "Start it again.",
        )

    async def _find(self) -> Path:
        if self._path is None:
            return await fetch(progress=self._progress)
        try:
            with self._path.open("rb") as file:
                start = file.read(len(_MAGIC))
        except OSError as error:
            raise LocalModelFailed(
                f"{self._path} cannot be read: {error.strerror or error}.", _GIVE
            ) from error
        if start != _MAGIC:
            raise LocalModelFailed(
                f"{self._path} is not a GGUF file (it does not start with GGUF).",
                _GIVE,
            )
        return self._path

    async def _start(self, path: Path) -> None:
        self._log = tempfile.TemporaryFile(prefix="tollbridge-local-")  # noqa: SIM115 (closed in _end)
        options = {"model": path, "id": self.model_id, "context": self._context, "port": self._port}
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tollbridge.local.server"),
            *(text for name, value in options.items() for text in (f"--{name}", str(value))),
            env=environment_without_keys(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C at the terminal stops an answer, not the model
        )
        match await self._announcement(self._process):
            case ServerReady(address):
                self.url = f"{address}/v1"
            case ServerFailed(reason):
                await self._stop(self._process)  # then its log is whole
                raise self._explained(reason)

    async def _announcement(self, process: asyncio.subprocess.Process) -> Announcement:
        if process.stdout is None:
            raise RuntimeError("the server process was started without a pipe")
        try:
            async with asyncio.timeout(_LOADING_TIMEOUT):
                line = await process.stdout.readline()
            return _ANNOUNCEMENTS.decode(line)
        except TimeoutError:
            return ServerFailed(f"it was not ready within {_LOADING_TIMEOUT:.0f} s")
        except msgspec.DecodeError:
            return ServerFailed(f"its process ended with exit code {await process.wait()}")

    def _explained(self, reason: str) -> LocalModelFailed:
        log = self._log_tail()
        for words, message, advice in _LOG_SAYS:
            if words in log:
                named = {"port": self._port, "model": self._path or self.model_id, "context": self._context}
                return LocalModelFailed(message.format(**named), advice)
        reason = reason.rstrip(".")
        if reason.startswith("ImportError"):
            return LocalModelFailed(f"The package xllamacpp does not work here ({reason}).", _INSTALL)
        return LocalModelFailed(
            f"The local model did not start: {reason}.{self._last_complaint()}",
            "Try again, or another model.",
        )

    def _last_complaint(self) -> str:
        complaints = re.findall(r"^[\d.]+ E (.+)$", self._log_tail(), re.MULTILINE)
        return f"; llama.cpp says: {complaints[-1].strip()}" if complaints else ""

    def _log_tail(self) -> str:
        if self._log is None:
            return ""
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - _LOG_TAIL))
        return self._log.read().decode(errors="replace")

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_ENDING_TIMEOUT):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await self._stop(process)
        if self._log is not None:
            self._log.close()
            self._log = None
