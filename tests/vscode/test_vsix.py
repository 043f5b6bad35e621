"""The file people install: what is in it, and what it says of itself."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest
from workshop import vsix

from tollbridge import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NAMESPACE = {"v": "http://schemas.microsoft.com/developer/vsx-schema/2011"}
DESCRIBED = json.loads((vsix.EXTENSION / "package.json").read_text())


@pytest.fixture(scope="module")
def archive(packed: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(packed)


def test_it_holds_the_extension_the_engine_and_nothing_of_ours_that_is_not_needed(
    archive: zipfile.ZipFile,
) -> None:
    names = set(archive.namelist())
    for needed in (*vsix.FILES, "LICENSE.txt", "bundled/libs/tollbridge/sidecar/server.py"):
        assert f"extension/{needed}" in names
    inside = [name.removeprefix("extension/bundled/libs/") for name in names]
    assert not [name for name in names if "__pycache__" in name or "node_modules" in name]
    assert not [
        name for name in inside if name.startswith(("tollbridge/cli/", "tollbridge/gateway/", "rich/"))
    ]


def test_its_manifest_names_every_asset(archive: zipfile.ZipFile) -> None:
    manifest = ET.fromstring(archive.read("extension.vsixmanifest"))
    identity = manifest.find("v:Metadata/v:Identity", NAMESPACE)
    assert identity is not None
    assert identity.get("Version") == DESCRIBED["version"]
    assert identity.get("TargetPlatform") == vsix.target()
    assets = [asset.get("Path", "") for asset in manifest.iterfind("v:Assets/v:Asset", NAMESPACE)]
    assert len(assets) == len(vsix.ASSETS)
    assert set(assets) <= set(archive.namelist())


def test_the_copy_inside_runs_by_itself(archive: zipfile.ZipFile, tmp_path: Path) -> None:
    """Isolated, as the extension starts it: nothing of this environment helps."""
    archive.extractall(tmp_path)
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    started = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "extension/bundled/start.py")],
        input=b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        capture_output=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    assert __version__.encode() in started.stdout, started.stderr


def test_the_extension_and_the_engine_have_one_version() -> None:
    assert DESCRIBED["version"] == __version__


def test_a_workspace_can_choose_neither_the_program_nor_where_it_connects() -> None:
    properties = DESCRIBED["contributes"]["configuration"]["properties"]
    assert {setting["scope"] for setting in properties.values()} == {"machine"}
    assert DESCRIBED["capabilities"]["untrustedWorkspaces"]["supported"] == "limited"


def test_it_can_be_published() -> None:
    """An extension that asks for proposed APIs cannot, and the host drops models that claim one of them."""
    assert "enabledApiProposals" not in DESCRIBED
    source = "".join(path.read_text() for path in (vsix.EXTENSION / "src").glob("*.ts"))
    assert "editTools" not in source
    assert list(DESCRIBED["dependencies"]) == ["vscode-jsonrpc"]


def test_the_lock_file_records_no_download_addresses() -> None:
    assert '"resolved"' not in (vsix.EXTENSION / "package-lock.json").read_text()
