"""What the programs of Tollbridge import late or not at all, and what that saves.

An editor waits for `initialize`, and a person for `ask` and `--help`. Measured on Python 3.11: processor time
and memory, without each trick and with it. With all of them, `initialize` takes 36 ms and 13.4 MB, `ask`
takes 231 ms and 41.5 MB, `--help` 55 ms. The first four rows are medians of 11 interleaved runs on a machine
with other load, where 2 ms are within the noise; the others are the time of the import alone, the best of
three.

| what | saves |
|---|---|
| `import_msgspec`: msgspec without typing_extensions | 6 ms and 1.2 MB of `initialize` |
| `_import_aiohttp`: no default TLS contexts | 49 ms and 1.9 MB of `ask` |
| `_import_aiohttp`: no C++ library | 1.0 MB of `ask` |
| hashlib, ipaddress, json and urllib.parse in `types` | 2 ms and 0.4 MB of `initialize` |
| `load_http_client`: aiohttp on first use | 163 ms of commands that send nothing |
| the sidecar answers `initialize` before it imports asyncio and the engine | 93 ms of `initialize` |
| tomlkit, in `config/file.py` | 53 ms of everything that reads settings |
| rich and prompt_toolkit, in `cli` | 22 to 311 ms of commands that do not need them |

An import inside a function that is in none of these rows belongs to the top of its module.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tollbridge.transport.http import HttpClient

# msgspec imports this module if it is installed, and does not need it on the Pythons we support.
_TYPING_EXTENSIONS = "typing_extensions"
# This compiled module loads the C++ library, 1 MB. aiohttp uses it for observers, and there are none.
_HIDDEN_MODULE = "frozenlist._frozenlist"
_program_is_ours = False


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, unless something else has imported that already."""
    hides_module = sys.modules.setdefault(_TYPING_EXTENSIONS, None) is None  # type: ignore[arg-type]
    importlib.import_module("msgspec")
    if hides_module:
        del sys.modules[_TYPING_EXTENSIONS]


def declare_own_program() -> None:
    """Let `load_http_client` import less of aiohttp (`_import_aiohttp`). Only for programs of Tollbridge."""
    global _program_is_ours
    _program_is_ours = True


def load_http_client() -> type[HttpClient]:
    """Return the class `HttpClient`, and import it first if that has not happened yet."""
    if _program_is_ours:
        _import_aiohttp()
    from tollbridge.transport.http import HttpClient

    return HttpClient


def _import_aiohttp() -> None:
    """Import aiohttp without what Tollbridge does not use, unless it is imported already.

    aiohttp loads the system's certificates twice when it is imported, for default contexts that are not used:
    `transport.http` has a context of its own. Without certificates the default contexts reject every server,
    so a library must not import aiohttp like this.
    """
    if "aiohttp" in sys.modules:
        return
    import ssl

    hides_module = sys.modules.setdefault(_HIDDEN_MODULE, None) is None  # type: ignore[arg-type]
    loading: Any = ssl.SSLContext
    load_default_certs = loading.load_default_certs
    loading.load_default_certs = loading.set_default_verify_paths = lambda *_: None
    try:
        importlib.import_module("aiohttp")
    finally:
        loading.load_default_certs = load_default_certs
        del loading.set_default_verify_paths  # the method of the base class
        if hides_module:
            with suppress(KeyError):
                del sys.modules[_HIDDEN_MODULE]
