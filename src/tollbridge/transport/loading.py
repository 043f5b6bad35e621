"""Load the HTTP client on first use, because importing aiohttp takes longer than everything else.

A program of ours loads less of it than a library may: `declare_own_program`.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tollbridge.transport.http import HttpClient

# This compiled module loads the C++ library, 1 MB. aiohttp uses it for observers, and there are none.
_HIDDEN_MODULE = "frozenlist._frozenlist"
_program_is_ours = False


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
    `transport.http` has a context of its own. This takes 0.1 s and 2 MB. Without certificates the default
    contexts reject every server, so a library must not import aiohttp like this.
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
