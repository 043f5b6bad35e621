"""Loopback hosts: the same rule for plain http, for keys and for profiles."""

from __future__ import annotations

import pytest

from tollbridge.compat.profiles import recognize_server
from tollbridge.config.accounts import Account
from tollbridge.config.keys import variables_for
from tollbridge.transport.http import check_url
from tollbridge.types.urls import is_loopback

LOOPBACK_HOSTS = ["localhost", "api.localhost", "127.0.0.1", "127.0.0.2", "::1", "0:0:0:0:0:0:0:1"]
OTHER_HOSTS = [
    "localhost.example",
    "127.0.0.1.example",
    "128.0.0.1",
    "10.0.0.1",
    "0.0.0.0",
    "::2",
    "127.x",
    "",
]


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_loopback_hosts_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", OTHER_HOSTS)
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["api.localhost", "127.0.0.2"])
def test_url_checks_profiles_and_keys_agree_on_loopback_hosts(host: str) -> None:
    url = f"http://{host}:11434/v1"
    check_url(url, allow_http=False)
    found = recognize_server(url)
    assert found is not None
    assert 11434 in found.marks.ports
    account = Account("default", url, "openresponses", "auto")
    assert "AI_GATEWAY_API_KEY" in variables_for(account)
