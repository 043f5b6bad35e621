"""A keyring that stores its entries in a file, for tests: `keyring` loads it by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend


class FileKeyring(KeyringBackend):
    priority = 1

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        _path().write_text(json.dumps({**self._entries(), f"{service}/{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        _path().write_text(
            json.dumps(
                {name: key for name, key in self._entries().items() if name != f"{service}/{username}"}
            )
        )

    def _entries(self) -> dict[str, str]:
        return dict(json.loads(_path().read_text())) if _path().exists() else {}


def _path() -> Path:
    return Path(os.environ["TEST_KEYRING"])
