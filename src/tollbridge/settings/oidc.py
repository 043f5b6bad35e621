"""Vercel's OIDC tokens: a new one, where one has expired, from the login of the Vercel CLI.

As the packages `@vercel/oidc` 4.0 and `@vercel/cli-config` 0.3 have it: the CLI keeps its login in
`com.vercel.cli/auth.json` in the place for data (`token`, `expiresAt` in seconds), a linked project has
`.vercel/project.json` (`projectId`, `orgId`), and `POST /v1/projects/{projectId}/token` makes a token for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tollbridge.core.errors import BridgeError, NotAuthenticated
from tollbridge.core.json import read_json
from tollbridge.settings.expiry import MARGIN, is_expired
from tollbridge.settings.keys import OIDC, Key, has_expired

API = "https://api.vercel.com"
_WHAT_TO_DO = "Run `vercel env pull` and load the new token, or set AI_GATEWAY_API_KEY."


class TokenRefresher:
    """Makes expired tokens good. New ones are kept in memory, for this process alone.

    `api` is where the CLI's login is sent; it goes nowhere else.
    """

    def __init__(
        self, api: str = API, environ: Mapping[str, str] = os.environ, folder: Path | None = None
    ) -> None:
        self._api = api
        self._environ = environ
        self._folder = folder
        self._fresh: Key | None = None

    async def good(self, key: Key | None) -> Key | None:
        """The key, or a new one where it is a token that has expired."""
        if key is None or not has_expired(key):
            return key
        if self._fresh is None or is_expired(self._fresh.value):
            self._fresh = await self._refreshed()
        return self._fresh

    async def _refreshed(self) -> Key:
        project = find_project(self._folder or Path.cwd())
        login = find_login(self._environ)
        missing = "no project is linked here" if project is None else "the Vercel CLI is not logged in here"
        if project is None or login is None:
            raise NotAuthenticated(f"The token in {OIDC} has expired, and {missing}. {_WHAT_TO_DO}")
        # Not at the top: it loads aiohttp, and hardly any token has expired.
        from tollbridge.io.http import HttpClient

        number, team = project
        query = urlencode({"source": "vercel-oidc-refresh", **({"teamId": team} if team else {})})
        url = f"{self._api}/v1/projects/{quote(number, safe='')}/token?{query}"
        try:
            async with HttpClient() as http, http.send("POST", url, _headers(login)) as reply:
                status, body = reply.status, await reply.read(1 << 20)
        except BridgeError as error:
            raise NotAuthenticated(
                f"The token in {OIDC} has expired, and no new one could be had: {error.message} {_WHAT_TO_DO}"
            ) from None
        token = _field(body, "token") if status < 400 else None
        if token is None:
            raise NotAuthenticated(
                f"The token in {OIDC} has expired, and Vercel gave no new one (HTTP {status}). {_WHAT_TO_DO}",
                status=status,
            )
        return Key(token, "Vercel CLI login")


def find_project(folder: Path) -> tuple[str, str | None] | None:
    """The Vercel project that a folder, or one above it, is linked to: its id and its team's."""
    for place in (folder, *folder.parents):
        linked = _read(place / ".vercel" / "project.json")
        if linked is not None:
            number = linked.get("projectId")
            team = linked.get("orgId")
            return (number, team if isinstance(team, str) else None) if isinstance(number, str) else None
    return None


def find_login(environ: Mapping[str, str] = os.environ) -> str | None:
    """The Vercel CLI's own token, while it is good. Its login is not ours to renew."""
    login = _read(_data_folder(environ) / "com.vercel.cli" / "auth.json") or {}
    token, until = login.get("token"), login.get("expiresAt")
    if isinstance(until, int | float) and until < time.time() + MARGIN:
        return None
    return token if isinstance(token, str) and token else None


def _data_folder(environ: Mapping[str, str]) -> Path:
    if environ.get("XDG_DATA_HOME"):
        return Path(environ["XDG_DATA_HOME"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "xdg.data"
    return Path.home() / ".local" / "share"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = read_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _field(body: bytes, name: str) -> str | None:
    try:
        found = read_json(body)
    except ValueError:
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) and value else None


def _headers(login: str) -> dict[str, str]:
    return {"authorization": f"Bearer {login}", "accept": "application/json", "user-agent": "tollbridge"}
