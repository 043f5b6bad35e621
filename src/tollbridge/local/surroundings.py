"""What the programs that we start may know of ours: everything but keys."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# A package index may need a password, and pip gets it so.
_PIPS = ("PIP_", "NETRC")


def without_keys(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name.startswith(_PIPS) or not _SECRET.search(name)
    }
