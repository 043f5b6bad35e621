"""Which hosts are this very machine: one answer for plain http, for keys and for profiles."""

from __future__ import annotations

import pytest

from tollbridge.compat.profiles import recognize_server
from tollbridge.config.accounts import Account
from tollbridge.config.keys import variables_for
from tollbridge.transport.http import check_url
from tollbridge.types.urls import is_loopback

HERE = ["localhost", "api.localhost", "127.0.0.1", "127.0.0.2", "::1", "0:0:0:0:0:0:0:1"]
ELSEWHERE = ["localhost.example", "127.0.0.1.example", "128.0.0.1", "10.0.0.1", "0.0.0.0", "::2", "127.x", ""]


@pytest.mark.parametrize("host", HERE)
def test_a_host_that_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_host_that_is_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["api.localhost", "127.0.0.2"])
def test_everyone_agrees_on_it(host: str) -> None:
    url = f"http://{host}:11434/v1"
    check_url(url, allow_http=False)
    found = recognize_server(url)
    assert found is not None
    assert 11434 in found.marks.ports
    account = Account("default", url, "openresponses", "auto")
    assert "AI_GATEWAY_API_KEY" in variables_for(account)
