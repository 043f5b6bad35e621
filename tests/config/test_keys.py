from __future__ import annotations

import base64
import json
import time

import pytest

from tollbridge.config.keys import describe_key, find_key
from tollbridge.config.schema import Account
from tollbridge.types.errors import RequestError
from tollbridge.types.urls import VERCEL_URL

KEYS = {"TOLLBRIDGE_API_KEY": "a", "AI_GATEWAY_API_KEY": "b", "VERCEL_OIDC_TOKEN": "c"}


def account(
    base_url: str = VERCEL_URL, key: str = "auto", name: str = "default", selected: bool = True
) -> Account:
    return Account(name, base_url, "openresponses", key, selected=selected)


@pytest.mark.parametrize(
    ("environment", "value", "source"),
    [
        (KEYS, "a", "environment TOLLBRIDGE_API_KEY"),
        ({"AI_GATEWAY_API_KEY": "b", "VERCEL_OIDC_TOKEN": "c"}, "b", "environment AI_GATEWAY_API_KEY"),
        ({"VERCEL_OIDC_TOKEN": "c"}, "c", "environment VERCEL_OIDC_TOKEN"),
        ({"TOLLBRIDGE_API_KEY": " ", "AI_GATEWAY_API_KEY": " b\n"}, "b", "environment AI_GATEWAY_API_KEY"),
    ],
)
def test_the_first_key_that_is_set_is_used(environment: dict[str, str], value: str, source: str) -> None:
    key = find_key(account(), environment)
    assert key is not None
    assert (key.value, key.source) == (value, source)
    assert find_key(account(), {}) is None


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines", "tab\tbed", "two words"])
def test_an_invalid_key_is_reported_by_its_variable_and_not_shown(key: str) -> None:
    with pytest.raises(RequestError) as caught:
        find_key(account(), {"AI_GATEWAY_API_KEY": key})
    assert "AI_GATEWAY_API_KEY" in caught.value.message
    assert key not in caught.value.message


@pytest.mark.parametrize(
    ("base_url", "value"),
    [
        (VERCEL_URL, "b"),
        ("http://127.0.0.1:8080/v1", "b"),
        ("http://[::1]:8080/v1", "b"),
        ("https://elsewhere.example/v1", None),
        ("https://ai-gateway.vercel.sh.evil.example/v1", None),
        ("https://127.0.0.1.evil.example/v1", None),
    ],
)
def test_vercel_keys_are_not_sent_to_other_hosts(base_url: str, value: str | None) -> None:
    key = find_key(account(base_url), {"AI_GATEWAY_API_KEY": "b", "VERCEL_OIDC_TOKEN": "c"})
    assert (key.value if key else None) == value


def expired_token() -> str:
    payload = json.dumps({"exp": int(time.time()) - 5}).encode()
    return f"e30.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.c2ln"


def test_an_expired_vercel_token_is_not_used_for_a_local_server() -> None:
    local, environ = account("http://127.0.0.1:8080/v1"), {"VERCEL_OIDC_TOKEN": expired_token()}
    assert find_key(local, environ) is None
    key = find_key(account(), environ)  # for Vercel it is refreshed, or reported as expired
    assert key is not None
    assert key.source == "environment VERCEL_OIDC_TOKEN"
    for candidate in (local, account()):
        assert describe_key(candidate, environ) == "expired (environment VERCEL_OIDC_TOKEN)"
    for source in ("none", "keyring"):
        assert not describe_key(account(key=source), environ).startswith("expired")


def test_an_account_that_names_a_variable_uses_no_other() -> None:
    mine = account("https://elsewhere.example/v1", "environment:THEIR_KEY")
    key = find_key(mine, {"THEIR_KEY": "x", **KEYS})
    assert key is not None
    assert key.value == "x"
    with pytest.raises(RequestError, match="THEIR_KEY, which is not set"):
        find_key(mine, KEYS)
    assert find_key(account(key="none"), KEYS) is None


def test_an_account_that_is_not_in_use_only_has_its_own_variable() -> None:
    other = account(name="at-work", selected=False)
    assert find_key(other, KEYS) is None
    key = find_key(other, {**KEYS, "TOLLBRIDGE_API_KEY_AT_WORK": "w"})
    assert key is not None
    assert key.value == "w"


def test_a_key_is_described_by_its_source_and_not_shown() -> None:
    key = find_key(account(), {"TOLLBRIDGE_API_KEY": "tk-secret"})
    assert repr(key) == "Key('environment TOLLBRIDGE_API_KEY')"
    assert (
        describe_key(account(), {"TOLLBRIDGE_API_KEY": "tk-secret"}) == "set (environment TOLLBRIDGE_API_KEY)"
    )
    assert describe_key(account(), {}) == "not set"
