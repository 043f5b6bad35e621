"""Packs the extension: `python -m workshop.vsix [--python 3.11 …]` makes one file that VS Code installs.

The Python package and what it needs travel inside. Compiled modules carry the Python version in their names,
so the files for several versions lie side by side in one folder.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from packaging.tags import platform_tags

from workshop import node

EXTENSION = Path(__file__).resolve().parents[1]
REPOSITORY = EXTENSION.parent
LIBS = EXTENSION / "bundled" / "libs"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# What a person or a test runs and the sidecar never does: packages of others, and our own.
NOT_NEEDED = ("click", "rich")
LEFT_OUT = ("cli", "gateway", "local", "__pycache__")
FILES = ("package.json", "README.md", "CHANGELOG.md", "icon.png", "dist/extension.cjs", "bundled/start.py")
TARGETS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "arm64"): "darwin-arm64",
    ("Darwin", "x86_64"): "darwin-x64",
    ("Windows", "AMD64"): "win32-x64",
}
# A fixed moment, so that the same content is the same file.
MOMENT = (2026, 1, 1, 0, 0, 0)

# What the host looks for by its role.
ASSETS = {
    "Code.Manifest": "package.json",
    "Services.Content.Details": "README.md",
    "Services.Content.Changelog": "CHANGELOG.md",
    "Services.Content.License": "LICENSE.txt",
    "Services.Icons.Default": "icon.png",
}

CONTENT_TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{types}</Types>
"""
MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={name} Version={version} Publisher={publisher} TargetPlatform={target}/>
    <DisplayName>{display_name}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Tags>{tags}</Tags>
    <Categories>{categories}</Categories>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine}/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="workspace"/>
    </Properties>
    <License>extension/LICENSE.txt</License>
    <Icon>extension/icon.png</Icon>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>{assets}</Assets>
</PackageManifest>
"""


def install_packages() -> None:
    """What the TypeScript side needs, from npm, where it is missing or was changed."""
    lock, installed = EXTENSION / "package-lock.json", EXTENSION / "node_modules/.package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        node.run("npm", "ci", "--ignore-scripts", "--silent", cwd=EXTENSION)


def bundle_script(*, minify: bool = False, tests: bool = False) -> None:
    """TypeScript into the one file the extension host loads, or into that of the tests it runs."""
    install_packages()
    options = [name for name, wanted in {"--minify": minify, "--tests": tests}.items() if wanted]
    node.run("node", "build.mjs", *options, cwd=EXTENSION)


def bundle_python(pythons: Sequence[str]) -> None:
    """The package and what it needs, for these versions of Python and this platform, into `bundled/libs`."""
    shutil.rmtree(LIBS, ignore_errors=True)
    for version in pythons:
        with tempfile.TemporaryDirectory() as folder:
            _install(version, Path(folder))
            shutil.copytree(folder, LIBS, dirs_exist_ok=True, ignore=shutil.ignore_patterns("bin", "*.pyi"))
    ignored = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(REPOSITORY / "src/tollbridge", LIBS / "tollbridge", ignore=ignored)


def pack(output: Path) -> Path:
    """Everything bundled so far into one VSIX file."""
    described = json.loads((EXTENSION / "package.json").read_text())
    files = dict(_shipped())
    output.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        _write(archive, "[Content_Types].xml", _content_types(files).encode())
        _write(archive, "extension.vsixmanifest", _manifest(described).encode())
        for name, path in sorted(files.items()):
            _write(archive, f"extension/{name}", path.read_bytes())
    return output


def target() -> str:
    return TARGETS[platform.system(), platform.machine()]


def _install(version: str, folder: Path) -> None:
    """Pinned like everything else. pip wants hashes for all or none, so the pins are given without theirs."""
    pins = folder / "pins.txt"
    lines = (REPOSITORY / "requirements.txt").read_text().splitlines()
    pins.write_text("\n".join(line.rstrip(" \\") for line in lines if line[:1].isalnum()))
    places = [option for tag in platform_tags() for option in ("--platform", tag)]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", version, *places]
    subprocess.run([*command, "--target", str(folder), "--constraint", str(pins), *_needed()], check=True)
    pins.unlink()


def _needed() -> list[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return [need for need in project["dependencies"] if not need.startswith(NOT_NEEDED)]


def _shipped() -> Iterator[tuple[str, Path]]:
    yield "LICENSE.txt", REPOSITORY / "LICENSE"
    for name in FILES:
        yield name, EXTENSION / name
    for path in LIBS.rglob("*"):
        if path.is_file():
            yield f"bundled/libs/{path.relative_to(LIBS).as_posix()}", path


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    archive.writestr(entry, content)


def _content_types(names: Iterable[str]) -> str:
    endings = {name.rpartition(".")[2] for name in (*names, ".vsixmanifest") if "." in Path(name).name}
    bare = sorted(name for name in names if "." not in Path(name).name)
    types = [
        f'<Default Extension={quoteattr(e)} ContentType="application/octet-stream"/>' for e in sorted(endings)
    ]
    types += [
        f'<Override PartName={quoteattr("/extension/" + name)} ContentType="application/octet-stream"/>'
        for name in bare
    ]
    return CONTENT_TYPES.format(types="".join(types))


def _manifest(described: dict[str, object]) -> str:
    def words(key: str) -> str:
        value = described[key]
        return escape(",".join(map(str, value)) if isinstance(value, list) else str(value))

    engines = described["engines"]
    return MANIFEST.format(
        name=quoteattr(words("name")),
        version=quoteattr(words("version")),
        publisher=quoteattr(words("publisher")),
        target=quoteattr(target()),
        display_name=words("displayName"),
        description=words("description"),
        tags=words("keywords"),
        categories=words("categories"),
        assets="".join(map(_asset, ASSETS.items())),
        engine=quoteattr(str(engines["vscode"]) if isinstance(engines, dict) else ""),
    )


def _asset(asset: tuple[str, str]) -> str:
    role, name = asset
    return f'<Asset Type="Microsoft.VisualStudio.{role}" Path="extension/{name}" Addressable="true"/>'


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions of Python to pack for")
    chosen = parser.parse_args(arguments)
    bundle_script(minify=True)
    bundle_python(chosen.python)
    version = json.loads((EXTENSION / "package.json").read_text())["version"]
    made = pack(REPOSITORY / "dist" / f"tollbridge-{target()}-{version}.vsix")
    print(f"{made.relative_to(REPOSITORY)} ({made.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
