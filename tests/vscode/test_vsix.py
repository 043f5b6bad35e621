"""Check the content and the manifest of the extension package."""

from __future__ import annotations

import json
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


def test_the_manifest_lists_every_asset(archive: zipfile.ZipFile) -> None:
    manifest = ET.fromstring(archive.read("extension.vsixmanifest"))
    identity = manifest.find("v:Metadata/v:Identity", NAMESPACE)
    assert identity is not None
    assert identity.get("Version") == MANIFEST["version"]
    assert identity.get("TargetPlatform") == vsix.target()
    assets = [asset.get("Path", "") for asset in manifest.iterfind("v:Assets/v:Asset", NAMESPACE)]
    assert len(assets) == len(vsix.ASSETS)
    assert set(assets) <= set(archive.namelist())


def test_the_bundled_engine_runs_without_installed_packages(archive: zipfile.ZipFile, tmp_path: Path) -> None:
    """Python runs in isolated mode, as the extension starts it, and without site-packages."""
    archive.extractall(tmp_path)
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    result = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "extension/bundled/start.py")],
        input=b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        capture_output=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    assert __version__.encode() in result.stdout, result.stderr


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
