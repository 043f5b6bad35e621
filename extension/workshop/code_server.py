"""Install code-server, a VS Code that runs in a browser, from npm into a folder that git ignores.

There are two installations. In `stock`, the published one, every extension can use every proposed API.
`strict` is a copy in which proposed APIs are rejected, as in the VS Code that users have. It also takes
the ids of disabled extensions to enable from an environment variable, an option that code-server lacks.
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
REPOSITORY = Path(__file__).resolve().parents[2]
INSTALL_DIR = Path(os.environ.get("TOLLBRIDGE_VSCODE_DIR") or REPOSITORY / "build" / "vscode")

Tree = Literal["stock", "strict"]
# The names of the folders. Change the name of `strict` when its patches change.
_FOLDERS: dict[Tree, str] = {"stock": f"stock-{VERSION}", "strict": f"strict-2-{VERSION}"}

# The ids of extensions to enable, separated by commas.
ENABLED_EXTENSIONS = "TOLLBRIDGE_VSCODE_EXTENSIONS"

_VSCODE = Path("node_modules/code-server/lib/vscode")
# Symbolic links that code-server's install script would create.
_LINKS = {"remote-cli/code-server": "code-linux.sh", "helpers/browser.sh": "browser-linux.sh"}
# The files that contain the check for proposed APIs.
_CHECKED_FILES = (
    "code/browser/workbench/workbench.js",
    "workbench/api/node/extensionHostProcess.js",
    "workbench/api/worker/extensionHostWorkerMain.js",
)
# code-server replaces the check for proposed APIs by a function that always returns true.
_PATCHED_CHECK = re.compile(
    r"function (\w+)\((\w+),(\w+)\)\{return!0\}"
    r"(?=function \w+\(\w+,\w+\)\{if\(!\1\(\w+,\w+\)\)throw new Error\(`Extension ')"
)
# VS Code's own check: the manifest must list the API.
_ORIGINAL_CHECK = r"function \1(\2,\3){return!!(\2.enabledApiProposals&&\2.enabledApiProposals.includes(\3))}"

# The options that the server passes to the workbench.
_SERVER = "server-main.js"
_OPTIONS = re.compile(r"(?=\benabledExtensionProposedApi:this\.)")
_EXTENSIONS_OPTION = f'enabledExtensions:process.env.{ENABLED_EXTENSIONS}?.split(","),'


def entry_point(tree: Tree = "stock") -> Path:
    """Return the script that starts code-server; install it first if necessary."""
    return install(tree) / "node_modules/code-server/out/node/entry.js"


def install(tree: Tree = "stock") -> Path:
    """Install code-server if necessary and return its folder. Other processes wait until it is complete."""
    folder = INSTALL_DIR / _FOLDERS[tree]
    INSTALL_DIR.mkdir(parents=True, exist_ok=True)
    with (INSTALL_DIR / f"{tree}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.{os.getpid()}")
            shutil.rmtree(partial, ignore_errors=True)
            (_install_stock if tree == "stock" else _install_strict)(partial)
            partial.rename(folder)
    return folder


def _install_stock(folder: Path) -> None:
    """Install from npm without install scripts: these compile native modules that are not needed here."""
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n')
    options = ("--ignore-scripts", "--silent", "--no-audit", "--no-fund", "--no-package-lock")
    node.run("npm", "install", *options, f"code-server@{VERSION}", cwd=folder)
    vscode = folder / _VSCODE
    for subfolder in (vscode, vscode / "extensions"):
        node.run("npm", "install", "--omit=dev", *options, cwd=subfolder)
    for link, target in _LINKS.items():
        path = vscode / "bin" / link
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _install_strict(folder: Path) -> None:
    """Copy the stock installation with hard links, and restore the check for proposed APIs."""
    shutil.copytree(install("stock"), folder, symlinks=True, copy_function=os.link)
    out = folder / _VSCODE / "out"
    for name in _CHECKED_FILES:
        _patch(out / "vs" / name, _PATCHED_CHECK, _ORIGINAL_CHECK)
    _patch(out / _SERVER, _OPTIONS, _EXTENSIONS_OPTION)


def _patch(path: Path, pattern: re.Pattern[str], replacement: str) -> None:
    text, count = pattern.subn(replacement, path.read_text())
    if count != 1:
        raise RuntimeError(f"{path}: expected one match of {pattern.pattern}, found {count}")
    path.unlink()  # writing to the hard link would change the stock installation too
    path.write_text(
        text.replace("this._envEnablesProposedApiForAll=!0", "this._envEnablesProposedApiForAll=!1")
    )


if __name__ == "__main__":
    install("stock")
    install("strict")
