"""Directories and variables that keep the programs under test away from the user's own data."""

from __future__ import annotations

import atexit
import shutil
import tempfile

DIRECTORY = tempfile.mkdtemp(prefix="tollbridge-tests-")
atexit.register(shutil.rmtree, DIRECTORY, ignore_errors=True)

ENVIRONMENT = {
    "XDG_CONFIG_HOME": f"{DIRECTORY}/config",
    "TOLLBRIDGE_DATA_DIR": f"{DIRECTORY}/data",
    "TOLLBRIDGE_CATALOG_DIR": f"{DIRECTORY}/catalog",
    "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
}
