"""Build the extension package: `python -m workshop.vsix [--python 3.11 …]` writes a .vsix file for VS Code.

It contains the Python package and its dependencies. The names of compiled modules contain the Python version,
so one folder holds the files for several versions. The vocabularies are most of the package: they are packed
with LZMA, which halves them, and unpacked by `bundled/start.py` at the first start.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from packaging.tags import platform_tags

from workshop import node

EXTENSION = Path(__file__).resolve().parents[1]
REPOSITORY = EXTENSION.parent
LIBS = EXTENSION / "bundled" / "libs"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Dependencies and modules that only the command line and tests use, not the sidecar; and brotli, because
# gateways also compress with gzip.
EXCLUDED_DEPENDENCIES = ("brotli", "click", "prompt-toolkit", "rich")
EXCLUDED_MODULES = ("cli", "testing", "local", "__pycache__")
FILES = ("package.json", "README.md", "CHANGELOG.md", "icon.png", "dist/extension.cjs", "bundled/start.py")
# Contains the vocabularies.
PACKED_DEPENDENCY = "splintr"
# The level of LZMA compression of a package to publish, and of one that is only tried.
Compression = Literal[0, 6]
BEST: Compression = 6
FAST: Compression = 0
TARGETS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "arm64"): "darwin-arm64",
    ("Darwin", "x86_64"): "darwin-x64",
    ("Windows", "AMD64"): "win32-x64",
}
# A fixed time stamp: the same content gives the same file.
TIMESTAMP = (2026, 1, 1, 0, 0, 0)

# Files by their role in the VSIX manifest.
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
    """Install the npm dependencies if they are missing or the lock file has changed."""
    lock, installed = EXTENSION / "package-lock.json", EXTENSION / "node_modules/.package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        node.run("npm", "ci", "--ignore-scripts", "--silent", cwd=EXTENSION)


def bundle_script(*, minify: bool = False, tests: bool = False) -> None:
    """Bundle the TypeScript into one file: the extension, or the tests that run inside VS Code."""
    install_packages()
    options = [name for name, enabled in {"--minify": minify, "--tests": tests}.items() if enabled]
    node.run("node", "build.mjs", *options, cwd=EXTENSION)


def bundle_python(pythons: Sequence[str], compression: Compression = FAST) -> None:
    """Copy the package and its dependencies for these Python versions to `bundled/libs`.

    Args:
        pythons: The Python versions.
        compression: The level at which the vocabularies are packed; the best takes half a minute.
    """
    shutil.rmtree(LIBS, ignore_errors=True)
    for version in pythons:
        with tempfile.TemporaryDirectory() as folder:
            _install_dependencies(version, Path(folder))
            shutil.copytree(folder, LIBS, dirs_exist_ok=True, ignore=shutil.ignore_patterns("bin", "*.pyi"))
    _strip_symbols()
    with tarfile.open(LIBS / f"{PACKED_DEPENDENCY}.tar.xz", "w:xz", preset=compression) as archive:
        archive.add(LIBS / PACKED_DEPENDENCY, PACKED_DEPENDENCY, filter=_without_owner)
    shutil.rmtree(LIBS / PACKED_DEPENDENCY)
    ignored = shutil.ignore_patterns(*EXCLUDED_MODULES)
    shutil.copytree(REPOSITORY / "src/tollbridge", LIBS / "tollbridge", ignore=ignored)


def _strip_symbols() -> None:
    """Remove the debug symbols from compiled modules for Linux: four fifths of their size."""
    modules = list(LIBS.rglob("*.so"))
    if platform.system() == "Linux" and modules and shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", *map(str, modules)], check=True)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make the archive the same on every machine."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def pack(output: Path, *, engine: bool = True) -> Path:
    """Write the bundled files to a VSIX file, or all but the engine."""
    manifest = json.loads((EXTENSION / "package.json").read_text())
    files = {name: path for name, path in _package_files() if engine or LIBS not in path.parents}
    output.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        _write(archive, "[Content_Types].xml", _content_types(files).encode())
        _write(archive, "extension.vsixmanifest", _vsix_manifest(manifest).encode())
        for name, path in sorted(files.items()):
            _write(archive, f"extension/{name}", path.read_bytes())
    return output


def target() -> str:
    """Return VS Code's name of this platform."""
    return TARGETS[platform.system(), platform.machine()]


def _install_dependencies(version: str, folder: Path) -> None:
    """Install the pinned versions, without hashes: pip accepts hashes only if all packages have them."""
    pins = folder / "pins.txt"
    lines = (REPOSITORY / "requirements.txt").read_text().splitlines()
    pins.write_text("\n".join(line.rstrip(" \\") for line in lines if line[:1].isalnum()))
    platforms = [option for tag in platform_tags() for option in ("--platform", tag)]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", version, *platforms]
    subprocess.run(
        [*command, "--target", str(folder), "--constraint", str(pins), *_dependencies()], check=True
    )
    pins.unlink()


def _dependencies() -> list[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return [name for name in project["dependencies"] if not name.startswith(EXCLUDED_DEPENDENCIES)]


def _package_files() -> Iterator[tuple[str, Path]]:
    yield "LICENSE.txt", REPOSITORY / "LICENSE"
    for name in FILES:
        yield name, EXTENSION / name
    for path in LIBS.rglob("*"):
        if path.is_file():
            yield f"bundled/libs/{path.relative_to(LIBS).as_posix()}", path


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, TIMESTAMP)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    archive.writestr(entry, content)


def _content_types(names: Iterable[str]) -> str:
    suffixes = {name.rpartition(".")[2] for name in (*names, ".vsixmanifest") if "." in Path(name).name}
    without_suffix = sorted(name for name in names if "." not in Path(name).name)
    types = [
        f'<Default Extension={quoteattr(suffix)} ContentType="application/octet-stream"/>'
        for suffix in sorted(suffixes)
    ]
    types += [
        f'<Override PartName={quoteattr("/extension/" + name)} ContentType="application/octet-stream"/>'
        for name in without_suffix
    ]
    return CONTENT_TYPES.format(types="".join(types))


def _vsix_manifest(manifest: dict[str, object]) -> str:
    def text(key: str) -> str:
        value = manifest[key]
        return escape(",".join(map(str, value)) if isinstance(value, list) else str(value))

    engines = manifest["engines"]
    return MANIFEST.format(
        name=quoteattr(text("name")),
        version=quoteattr(text("version")),
        publisher=quoteattr(text("publisher")),
        target=quoteattr(target()),
        display_name=text("displayName"),
        description=text("description"),
        tags=text("keywords"),
        categories=text("categories"),
        assets="".join(map(_asset, ASSETS.items())),
        engine=quoteattr(str(engines["vscode"]) if isinstance(engines, dict) else ""),
    )


def _asset(asset: tuple[str, str]) -> str:
    role, name = asset
    return f'<Asset Type="Microsoft.VisualStudio.{role}" Path="extension/{name}" Addressable="true"/>'


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the extension package (.vsix) in dist/.")
    parser.add_argument(
        "--python", nargs="+", default=PYTHONS, help="Python versions to include dependencies for"
    )
    options = parser.parse_args(arguments)
    bundle_script(minify=True)
    bundle_python(options.python, BEST)
    version = json.loads((EXTENSION / "package.json").read_text())["version"]
    output = pack(REPOSITORY / "dist" / f"tollbridge-{target()}-{version}.vsix")
    print(f"{output.relative_to(REPOSITORY)} ({output.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
