"""Tollbridge connects editors, agents and programs to language-model gateways.

    from tollbridge import SyncEngine
    with SyncEngine.open() as engine:
        print(engine.create("Hello!", model="openai/gpt-5.4").text)

`dir(tollbridge)` lists the public names, and `help(tollbridge.Engine)` describes one of them. The file
`__init__.pyi` beside this one is the list: each name with its module, grouped by topic. A name is imported on
first use, so that a program only loads what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tollbridge._version import __version__ as __version__

_modules: dict[str, str] = {}


def _find_modules() -> dict[str, str]:
    """Return the module of each public name. The stub is read by the first call."""
    if not _modules:
        with open(f"{__file__.removesuffix('.py')}.pyi", encoding="utf-8") as stub:
            for line in stub:
                # from tollbridge.engine import Engine as Engine
                if line.startswith("from ") and not line.endswith("__version__\n"):
                    _, module, _, name, *_ = line.split()
                    _modules[name] = module
    return _modules


def __getattr__(name: str) -> Any:
    # A name with an underscore is never public: Python itself looks for several of them.
    if name.startswith("_") or name not in _find_modules():
        raise AttributeError(f"module 'tollbridge' has no attribute {name!r}")
    value = getattr(import_module(_find_modules()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*sorted(_find_modules()), "__version__"]
