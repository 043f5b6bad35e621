"""A real VS Code that runs in a browser, installed from npm into a folder git ignores.

Two trees: `stock` as published, where every extension may use every proposed API, and `strict`, in which
proposed APIs are refused as in the VS Code people have.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path
from typing import Literal

from workshop import node

VERSION = "4.139.1"
HERE = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("TOLLBRIDGE_VSCODE_DIR") or HERE / "build" / "vscode")

Tree = Literal["stock", "strict"]

_VSCODE = Path("node_modules/code-server/lib/vscode")
# What its install script would have linked.
_LINKS = {"remote-cli/code-server": "code-linux.sh", "helpers/browser.sh": "browser-linux.sh"}
_GATED = (
    "code/browser/workbench/workbench.js",
    "workbench/api/node/extensionHostProcess.js",
    "workbench/api/worker/extensionHostWorkerMain.js",
)
# code-server answers "may this extension use this proposed API?" with yes. Upstream looks into the manifest.
_GRANTS_ALL = re.compile(
    r"function (\w+)\((\w+),(\w+)\)\{return!0\}"
    r"(?=function \w+\(\w+,\w+\)\{if\(!\1\(\w+,\w+\)\)throw new Error\(`Extension ')"
)
_ASKS_THE_MANIFEST = (
    r"function \1(\2,\3){return!!(\2.enabledApiProposals&&\2.enabledApiProposals.includes(\3))}"
)


def entry(tree: Tree = "stock") -> Path:
    """The program of a tree, installed first where it is missing."""
    return install(tree) / "node_modules/code-server/out/node/entry.js"


def install(tree: Tree = "stock") -> Path:
    """One process makes the tree; others that want it meanwhile wait for it."""
    folder = HOME / f"{tree}-{VERSION}"
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f"{tree}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            work = folder.with_name(f"{folder.name}.{os.getpid()}")
            shutil.rmtree(work, ignore_errors=True)
            (_make_stock if tree == "stock" else _make_strict)(work)
            work.rename(folder)
    return folder


def _make_stock(folder: Path) -> None:
    """No install scripts: they compile native modules that a browser VS Code can do without."""
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n')
    quiet = ("--ignore-scripts", "--silent", "--no-audit", "--no-fund", "--no-package-lock")
    node.run("npm", "install", *quiet, f"code-server@{VERSION}", cwd=folder)
    vscode = folder / _VSCODE
    for place in (vscode, vscode / "extensions"):
        node.run("npm", "install", "--omit=dev", *quiet, cwd=place)
    for link, target in (
        ("remote-cli/code-server", "code-linux.sh"),
        ("helpers/browser.sh", "browser-linux.sh"),
    ):
        path = vscode / "bin" / link
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _make_strict(folder: Path) -> None:
    shutil.copytree(install("stock"), folder, symlinks=True, copy_function=os.link)
    for name in _GATED:
        path = folder / _VSCODE / "out/vs" / name
        text, found = _GRANTS_ALL.subn(_ASKS_THE_MANIFEST, path.read_text())
        if found != 1:
            raise RuntimeError(f"{path}: expected one check for proposed APIs, found {found}")
        path.unlink()  # a hard link: the stock tree keeps its own
        path.write_text(
            text.replace("this._envEnablesProposedApiForAll=!0", "this._envEnablesProposedApiForAll=!1")
        )


if __name__ == "__main__":
    for each in ("stock", "strict"):
        install(each)
