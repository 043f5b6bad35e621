"""Refreshing OIDC tokens, with a mock of Vercel's API on a loopback socket."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tollbridge.config.keys import Key, expiry, is_expired
from tollbridge.config.oidc import TokenRefresher, find_login
from tollbridge.types.errors import NotAuthenticated

SOURCE = "environment VERCEL_OIDC_TOKEN"


def token(**payload: object) -> str:
    head, body = ({"alg": "RS256"}, payload)
    pieces = [
        base64.urlsafe_b64encode(json.dumps(piece).encode()).decode().rstrip("=") for piece in (head, body)
    ]
    return ".".join([*pieces, "c2ln"])


def expired() -> Key:
    return Key(token(exp=int(time.time()) - 5), SOURCE)


class Api:
    """A mock of Vercel's API, with the requests that it received."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.status = 200
        self.token = token(exp=int(time.time()) + 3600)
        self.url = ""

    async def make_token(self, request: web.Request) -> web.Response:
        self.requests.append((request.path_qs, request.headers["authorization"]))
        return web.json_response({"token": self.token}, status=self.status)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    app = web.Application()
    app.router.add_post("/v1/projects/{id}/token", api.make_token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield api
    await runner.cleanup()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with a login of the Vercel CLI, and a linked project with a subfolder."""
    login(tmp_path, token="cli-login", expiresAt=time.time() + 3600)
    (tmp_path / "project" / ".vercel").mkdir(parents=True)
    (tmp_path / "project" / "src").mkdir()
    linked = {"projectId": "prj_1", "orgId": "team_2"}
    (tmp_path / "project" / ".vercel" / "project.json").write_text(json.dumps(linked))
    return tmp_path


def login(home: Path, **fields: object) -> None:
    (home / "com.vercel.cli").mkdir(exist_ok=True)
    (home / "com.vercel.cli" / "auth.json").write_text(json.dumps(fields))


def refresher(api: Api, home: Path, folder: str = "project/src") -> TokenRefresher:
    return TokenRefresher(api.url, {"XDG_DATA_HOME": str(home)}, home / folder)


def test_the_expiry_of_a_token_is_read_from_its_payload() -> None:
    assert expiry(token(exp=1_800_000_000)) == 1_800_000_000.0
    assert is_expired(token(exp=1000), now=999)
    assert not is_expired(token(exp=1000), now=900)


@pytest.mark.parametrize("text", ["", "key", "a.b.c", "a.!!!.c", token(), token(exp="soon"), token(exp=True)])
def test_a_token_without_an_expiry_is_not_expired(text: str) -> None:
    assert expiry(text) is None
    assert not is_expired(text)


async def test_an_expired_token_is_replaced_with_the_login_of_the_vercel_cli(api: Api, home: Path) -> None:
    tokens = refresher(api, home)
    new_key = await tokens.refresh(expired())
    assert new_key is not None
    assert (new_key.value, new_key.source) == (api.token, "Vercel CLI login")
    await tokens.refresh(expired())
    # Requested once: the new token is reused until it expires.
    assert api.requests == [
        ("/v1/projects/prj_1/token?source=vercel-oidc-refresh&teamId=team_2", "Bearer cli-login")
    ]


async def test_valid_tokens_and_other_keys_are_returned_unchanged(api: Api, home: Path) -> None:
    valid = Key(token(exp=int(time.time()) + 3600), SOURCE)
    other = Key(token(exp=1), "environment TOLLBRIDGE_API_KEY")
    tokens = refresher(api, home)
    assert await tokens.refresh(valid) is valid
    assert await tokens.refresh(other) is other
    assert await tokens.refresh(None) is None
    assert api.requests == []


async def test_without_a_login_or_a_project_the_error_says_what_to_do(
    api: Api, home: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        NotAuthenticated, match=r"this directory is not linked to a Vercel project\. Run `vercel env pull`"
    ):
        await refresher(api, home, folder="com.vercel.cli").refresh(expired())
    login(home, token="cli-login", expiresAt=time.time() - 5)
    with pytest.raises(NotAuthenticated, match="the Vercel CLI is not logged in"):
        await refresher(api, home).refresh(expired())
    (home / "com.vercel.cli" / "auth.json").write_text("not json")
    assert find_login({"XDG_DATA_HOME": str(home)}) is None
    assert api.requests == []


async def test_the_error_for_a_rejected_refresh_does_not_contain_the_keys(api: Api, home: Path) -> None:
    api.status = 403
    key = expired()
    with pytest.raises(NotAuthenticated, match=r"did not return a new one \(HTTP 403\)") as caught:
        await refresher(api, home).refresh(key)
    assert key.value not in caught.value.message
    assert "cli-login" not in caught.value.message


async def test_an_unreachable_api_is_reported(home: Path) -> None:
    tokens = TokenRefresher("http://127.0.0.1:9", {"XDG_DATA_HOME": str(home)}, home / "project")
    with pytest.raises(NotAuthenticated, match=r"could not be refreshed: Could not connect"):
        await tokens.refresh(expired())
