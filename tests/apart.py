"""Environment variables that keep the programs under test away from the user's own files and keyring."""

from __future__ import annotations

import atexit
import shutil
import tempfile

FOLDER = tempfile.mkdtemp(prefix="tollbridge-tests-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)

PLACES = {
    "XDG_CONFIG_HOME": f"{FOLDER}/config",
    "TOLLBRIDGE_DATA_DIR": f"{FOLDER}/data",
    "TOLLBRIDGE_CATALOGUE_DIR": f"{FOLDER}/catalogue",
    "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
}
