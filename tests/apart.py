"""Where the programs under test write things down for later: apart from the machine's own places."""

from __future__ import annotations

import atexit
import shutil
import tempfile

_FOLDER = tempfile.mkdtemp(prefix="tollbridge-tests-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

PLACES = {
    "XDG_CONFIG_HOME": f"{_FOLDER}/config",
    "TOLLBRIDGE_DATA_DIR": f"{_FOLDER}/data",
    "TOLLBRIDGE_CATALOGUE_DIR": f"{_FOLDER}/catalogue",
    "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
}
