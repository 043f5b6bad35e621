"""Check the content and the manifest of the extension package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest
from workshop import vsix

from tollbridge._version import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NAMESPACE = {"v": "http://schemas.microsoft.com/developer/vsx-schema/2011"}
MANIFEST = json.loads((vsix.EXTENSION / "package.json").read_text())


@pytest.fixture(scope="module")
def archive(package: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(package)


def test_the_package_contains_the_extension_and_the_engine_and_no_unneeded_modules(
    archive: zipfile.ZipFile,
) -> None:
    names = set(archive.namelist())
    engine = ("frontends/stdio/server.py", "frontends/usage_page/usage.html")
    for name in (*vsix.FILES, "LICENSE.txt", *(f"bundled/libs/tollbridge/{file}" for file in engine)):
        assert f"extension/{name}" in names
    libs = [name.removeprefix("extension/bundled/libs/") for name in names]
    unneeded = ("tollbridge/cli/", "tollbridge/testing/", "tollbridge/local/", "tollbridge/gateway", "rich/")
    assert not [name for name in names if "__pycache__" in name or "node_modules" in name]
    assert not [name for name in libs if name.startswith(unneeded)]


def test_the_package_is_small(archive: zipfile.ZipFile) -> None:
    """At most 20 MB. A package to publish has four versions of Python, but is compressed better."""
    sizes = {entry.filename: entry.compress_size for entry in archive.infolist()}
    vocabularies = sizes.pop("extension/bundled/libs/splintr.tar.xz")
    compiled = sum(size for name, size in sizes.items() if name.endswith((".so", ".pyd", ".dylib")))
    assert sum(sizes.values()) + vocabularies <= 20_000_000
    assert sum(sizes.values()) + 3 * compiled <= 5_000_000


def test_the_manifest_lists_every_asset(archive: zipfile.ZipFile) -> None:
    manifest = ET.fromstring(archive.read("extension.vsixmanifest"))
    identity = manifest.find("v:Metadata/v:Identity", NAMESPACE)
    assert identity is not None
    assert identity.get("Version") == MANIFEST["version"]
    assert identity.get("TargetPlatform") == vsix.target()
    assets = [asset.get("Path", "") for asset in manifest.iterfind("v:Assets/v:Asset", NAMESPACE)]
    assert len(assets) == len(vsix.ASSETS)
    assert set(assets) <= set(archive.namelist())


def count_with_bundled_engine(folder: Path) -> bytes:
    """Count tokens. Python runs in isolated mode, as the extension starts it, and without site-packages."""
    bodies = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}',
        b'{"jsonrpc":"2.0","id":2,"method":"count","params":{"model":"openai/gpt-5","items":["hi there"]}}',
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(folder / "extension/bundled/start.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "TOLLBRIDGE_CACHE_DIR": str(folder / "cache")},
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        answers = b""
        for body in bodies:
            process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            process.stdin.flush()
            length = int(process.stdout.readline().split()[1])
            answers += process.stdout.read(len(b"\r\n") + length)
        process.stdin.close()
        assert not process.stderr.read()
    return answers


def test_the_bundled_engine_runs_without_installed_packages(archive: zipfile.ZipFile, tmp_path: Path) -> None:
    archive.extractall(tmp_path)
    libs = tmp_path / "extension/bundled/libs"
    for _ in range(2):  # the first start unpacks the vocabularies
        output = count_with_bundled_engine(tmp_path)
        assert __version__.encode() in output
        assert b'"counts":[2]' in output
        assert (libs / "splintr").is_dir()
    assert not (tmp_path / "cache").exists()
    assert not list(libs.glob(".unpacking-*"))


def test_the_vocabularies_are_unpacked_to_the_cache_if_the_extension_cannot_be_written(
    archive: zipfile.ZipFile, tmp_path: Path
) -> None:
    archive.extractall(tmp_path)
    libs = tmp_path / "extension/bundled/libs"
    (libs / "splintr").write_bytes(b"")  # a file in the way: root can write to every folder
    for _ in range(2):
        assert b'"counts":[2]' in count_with_bundled_engine(tmp_path)
    assert [path.name for path in (tmp_path / "cache").glob("*/*")] == ["splintr"]


def test_the_extension_and_the_engine_have_the_same_version() -> None:
    assert MANIFEST["version"] == __version__


def test_a_workspace_cannot_change_any_setting() -> None:
    properties = MANIFEST["contributes"]["configuration"]["properties"]
    assert {setting["scope"] for setting in properties.values()} == {"machine"}
    assert MANIFEST["capabilities"]["untrustedWorkspaces"]["supported"] == "limited"


def test_the_extension_can_be_published() -> None:
    """An extension that requests proposed APIs cannot be published, and VS Code hides models that use one."""
    assert "enabledApiProposals" not in MANIFEST
    source = "".join(path.read_text() for path in (vsix.EXTENSION / "src").glob("*.ts"))
    assert "editTools" not in source
    assert list(MANIFEST["dependencies"]) == ["vscode-jsonrpc"]


def test_the_lock_file_records_no_download_addresses() -> None:
    assert '"resolved"' not in (vsix.EXTENSION / "package-lock.json").read_text()
