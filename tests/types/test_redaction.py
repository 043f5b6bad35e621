from __future__ import annotations

import pytest

from tollbridge.types.errors import GatewayError, hide_key

KEY = "sk-abcdefgh-0123456789"


def test_a_key_is_redacted_in_all_texts_of_an_error() -> None:
    error = GatewayError(f"{KEY} is wrong", code=f"bad_{KEY}", request_id=f"for {KEY}", param=f"[{KEY}]")
    hide_key(error, KEY)
    assert KEY not in f"{error.message}{error.args}{error.code}{error.request_id}{error.param}"
    assert error.message == "[key] is wrong"


def test_a_truncated_key_at_the_end_of_a_message_is_redacted() -> None:
    error = GatewayError(f"You sent {KEY[:12]}…")
    hide_key(error, KEY)
    assert error.message == "You sent [key]…"


def test_without_a_key_nothing_is_redacted() -> None:
    error = GatewayError("The key is wrong")
    hide_key(error, None)
    assert error.message == "The key is wrong"


def test_a_short_key_is_redacted_only_as_a_word() -> None:
    error = GatewayError('The key "a" of an account is invalid: a.')
    hide_key(error, "a")
    assert error.message == 'The key "[key]" of an account is invalid: [key].'


@pytest.mark.parametrize("key", [KEY, None])
def test_user_names_and_passwords_in_urls_are_redacted(key: str | None) -> None:
    error = GatewayError("Redirected to https://user:pass@host/v1?mail=a@b.example, see http://host/@me.")
    hide_key(error, key)
    assert error.message == "Redirected to https://[hidden]@host/v1?mail=a@b.example, see http://host/@me."
    assert error.args == (error.message,)
