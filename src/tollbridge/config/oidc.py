"""Replace expired OIDC tokens of Vercel with the login of the Vercel CLI.

The protocol is that of the packages `@vercel/oidc` 4.0 and `@vercel/cli-config` 0.3. The Vercel CLI stores
its login in `com.vercel.cli/auth.json` in the data directory (`token`, `expiresAt` in seconds). A linked
project has `.vercel/project.json` (`projectId`, `orgId`). `POST /v1/projects/{projectId}/token` returns a new
token for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from tollbridge.config.keys import EXPIRY_MARGIN, OIDC_VARIABLE, Key, is_expired, is_expired_oidc
from tollbridge.transport.loading import load_http_client
from tollbridge.types.errors import BridgeError, NotAuthenticated
from tollbridge.types.text import Fields, read_json

VERCEL_API = "https://api.vercel.com"


class TokenRefresher:
    """Replaces expired OIDC tokens. New tokens are only held in memory.

    Args:
        api: The base URL of Vercel's API. The login of the Vercel CLI is sent there and nowhere else.
        environ: Environment variables, for the directory of the login.
        folder: A folder in the linked project; the current folder by default.
    """

    def __init__(
        self, api: str = VERCEL_API, environ: Mapping[str, str] = os.environ, folder: Path | None = None
    ) -> None:
        self._api = api
        self._environ = environ
        self._folder = folder
        self._new_key: Key | None = None

    async def refresh(self, key: Key | None) -> Key | None:
        """Return the key, or a new one if it is an OIDC token that has expired.

        Raises:
            NotAuthenticated: If the token has expired and cannot be refreshed.
        """
        if key is None or not is_expired_oidc(key):
            return key
        if self._new_key is None or is_expired(self._new_key.value):
            self._new_key = await self._request_token()
        return self._new_key

    async def _request_token(self) -> Key:
        project = find_project(self._folder or Path.cwd())
        login = find_login(self._environ)
        if project is None or login is None:
            missing = "the Vercel CLI is not logged in"
            if project is None:
                missing = "this directory is not linked to a Vercel project"
            raise _expired(f", and {missing}.")
        project_id, team = project
        query = urlencode({"source": "vercel-oidc-refresh", **({"teamId": team} if team else {})})
        url = f"{self._api}/v1/projects/{quote(project_id, safe='')}/token?{query}"
        headers = {
            "authorization": f"Bearer {login}",
            "accept": "application/json",
            "user-agent": "tollbridge",
        }
        try:
            async with load_http_client()() as http, http.send("POST", url, headers) as response:
                status, body = response.status, await response.read(1 << 20)
        except BridgeError as error:
            raise _expired(f" and could not be refreshed: {error.message}") from None
        token = _read_fields(body).text("token") if status < 400 else None
        if not token:
            raise _expired(f", and Vercel did not return a new one (HTTP {status}).", status)
        return Key(token, "Vercel CLI login")


def _expired(problem: str, status: int | None = None) -> NotAuthenticated:
    advice = "Run `vercel env pull` and load the new token, or set AI_GATEWAY_API_KEY."
    return NotAuthenticated(f"The token in {OIDC_VARIABLE} has expired{problem} {advice}", status=status)


def find_project(folder: Path) -> tuple[str, str | None] | None:
    """Return the IDs of the Vercel project and its team that a folder, or a parent, is linked to."""
    for candidate in (folder, *folder.parents):
        if project := _read_file(candidate / ".vercel" / "project.json"):
            project_id = project.text("projectId")
            return None if project_id is None else (project_id, project.text("orgId"))
    return None


def find_login(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the token of the Vercel CLI, or `None` if it is missing or expired. It is not refreshed."""
    login = _read_file(_vercel_data_folder(environ) / "com.vercel.cli" / "auth.json")
    expires_at = login.raw.get("expiresAt")
    if isinstance(expires_at, int | float) and expires_at < time.time() + EXPIRY_MARGIN:
        return None
    return login.text("token") or None


def _vercel_data_folder(environ: Mapping[str, str]) -> Path:
    """Return the data directory as the Vercel CLI computes it, which differs from platformdirs."""
    if environ.get("XDG_DATA_HOME"):
        return Path(environ["XDG_DATA_HOME"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "xdg.data"
    return Path.home() / ".local" / "share"


def _read_file(path: Path) -> Fields:
    try:
        return _read_fields(path.read_bytes())
    except OSError:
        return Fields(None)


def _read_fields(data: bytes) -> Fields:
    """Read a JSON object; anything else is empty."""
    try:
        return Fields(read_json(data))
    except ValueError:
        return Fields(None)
