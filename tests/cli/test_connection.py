from __future__ import annotations

import pytest

from tollbridge.cli.connection import Choice, choose
from tollbridge.cli.options import Where
from tollbridge.clients.openresponses import VERCEL

URL = "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    ("where", "has_key", "can_serve", "kind", "base_url"),
    [
        (Where(URL), False, True, "remote", URL),
        (Where(URL), True, True, "remote", URL),
        (Where(URL, local=True), True, True, "local", ""),
        (Where(), True, True, "remote", VERCEL),
        (Where(), False, True, "local", ""),
        (Where(), False, False, "embedded", ""),
    ],
)
def test_which_gateway_is_used(
    where: Where, has_key: bool, can_serve: bool, kind: str, base_url: str
) -> None:
    choice = choose(where, has_key, can_serve)
    assert (choice.kind, choice.base_url) == (kind, base_url)


def test_a_choice_that_was_not_the_persons_is_told() -> None:
    assert choose(Where(URL), False, True) == Choice("remote", URL)
    assert "on this machine" in choose(Where(), False, True).reason
    assert "embedded demo" in choose(Where(), False, False).reason
