"""Tokens with the shape Vercel's have, and a stand-in for its API on a loopback socket."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tollbridge.config.keys import Key, TokenRefresher, expiry, find_login, is_expired
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
    """What Vercel's API answers, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.status = 200
        self.token = token(exp=int(time.time()) + 3600)
        self.url = ""

    async def make_token(self, request: web.Request) -> web.Response:
        self.asked.append((request.path_qs, request.headers["authorization"]))
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
    """A machine where the Vercel CLI is logged in, and a linked project with a folder inside."""
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


def test_the_time_a_token_expires_is_read_from_it() -> None:
    assert expiry(token(exp=1_800_000_000)) == 1_800_000_000.0
    assert is_expired(token(exp=1000), now=999)
    assert not is_expired(token(exp=1000), now=900)


@pytest.mark.parametrize("odd", ["", "key", "a.b.c", "a.!!!.c", token(), token(exp="soon"), token(exp=True)])
def test_what_does_not_say_when_it_expires_does_not(odd: str) -> None:
    assert expiry(odd) is None
    assert not is_expired(odd)


async def test_an_expired_token_is_replaced_with_the_login_of_the_vercel_cli(api: Api, home: Path) -> None:
    tokens = refresher(api, home)
    fresh = await tokens.good(expired())
    assert fresh is not None
    assert (fresh.value, fresh.source) == (api.token, "Vercel CLI login")
    await tokens.good(expired())
    # Asked once: the new token is kept while it is good.
    assert api.asked == [
        ("/v1/projects/prj_1/token?source=vercel-oidc-refresh&teamId=team_2", "Bearer cli-login")
    ]


async def test_good_tokens_and_other_keys_are_left_alone(api: Api, home: Path) -> None:
    good = Key(token(exp=int(time.time()) + 3600), SOURCE)
    other = Key(token(exp=1), "environment TOLLBRIDGE_API_KEY")
    tokens = refresher(api, home)
    assert await tokens.good(good) is good
    assert await tokens.good(other) is other
    assert await tokens.good(None) is None
    assert api.asked == []


async def test_without_a_login_or_a_project_it_says_what_to_do(api: Api, home: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAuthenticated, match=r"no project is linked here\. Run `vercel env pull`"):
        await refresher(api, home, folder="com.vercel.cli").good(expired())
    login(home, token="cli-login", expiresAt=time.time() - 5)
    with pytest.raises(NotAuthenticated, match="the Vercel CLI is not logged in here"):
        await refresher(api, home).good(expired())
    (home / "com.vercel.cli" / "auth.json").write_text("not json")
    assert find_login({"XDG_DATA_HOME": str(home)}) is None
    assert api.asked == []


async def test_a_refusal_is_told_without_the_keys(api: Api, home: Path) -> None:
    api.status = 403
    key = expired()
    with pytest.raises(NotAuthenticated, match=r"gave no new one \(HTTP 403\)") as caught:
        await refresher(api, home).good(key)
    assert key.value not in caught.value.message
    assert "cli-login" not in caught.value.message


async def test_an_api_out_of_reach_is_told(home: Path) -> None:
    tokens = TokenRefresher("http://127.0.0.1:9", {"XDG_DATA_HOME": str(home)}, home / "project")
    with pytest.raises(NotAuthenticated, match="no new one could be had: Could not connect"):
        await tokens.good(expired())
