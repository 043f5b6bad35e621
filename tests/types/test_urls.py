"""Loopback hosts: the same rule for plain http, for keys and for profiles; requests of web pages."""

from __future__ import annotations

import pytest

from tollbridge.compat.known_servers import recognize_server
from tollbridge.config.keys import variables_for
from tollbridge.config.schema import Account
from tollbridge.transport.http import check_url
from tollbridge.types.urls import explain_refusal, is_loopback

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
    server = recognize_server(url)
    assert server is not None
    assert 11434 in server.recognized_by.ports
    account = Account("default", url, "openresponses", "auto")
    assert "AI_GATEWAY_API_KEY" in variables_for(account)


@pytest.mark.parametrize(
    ("headers", "is_foreign"),
    [
        ({"Host": "127.0.0.1:80"}, False),
        ({"Host": "localhost"}, False),
        ({"Host": "[::1]:80"}, False),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, False),
        ({"Host": "localhost:80", "Sec-Fetch-Site": "same-origin"}, False),
        ({}, True),
        ({"Host": ""}, True),
        ({"Host": "[::1"}, True),
        ({"Host": "192.168.0.7"}, True),
        ({"Host": "attacker.example"}, True),
        ({"Host": "localhost.attacker.example"}, True),
        ({"Host": "localhost@attacker.example"}, True),
        ({"Host": "attacker.example", "Origin": "http://attacker.example"}, True),
        ({"Host": "localhost:80", "Origin": "http://localhost:81"}, True),
        ({"Host": "localhost:80", "Origin": "https://attacker.example"}, True),
        ({"Host": "localhost:80", "Origin": "null"}, True),
        ({"Host": "localhost:80", "Sec-Fetch-Site": "cross-site"}, True),
    ],
)
def test_requests_of_web_pages_are_recognized(headers: dict[str, str], is_foreign: bool) -> None:
    assert (explain_refusal(headers) is not None) is is_foreign
