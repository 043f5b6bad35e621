"""Errors become messages and facts for editors."""

from __future__ import annotations

from typing import Any

import pytest

from tollbridge.config.errors import SettingsUnusable
from tollbridge.frontends.vscode.errors import encode_error
from tollbridge.types.errors import (
    BridgeError,
    ContextTooLong,
    Disconnected,
    NotAuthenticated,
    RateLimited,
    ServerFailed,
)


@pytest.mark.parametrize(
    ("error", "sentence", "facts"),
    [
        (
            NotAuthenticated("Invalid API key", status=401),
            "Invalid API key. Check the account's API key with “Tollbridge: Set Up”.",
            {"kind": "authentication", "status": 401},
        ),
        (
            RateLimited("Slow down.", status=429, retry_after=7.0, code="rate_limit_exceeded"),
            "Slow down. Try again in 7 s.",
            {"kind": "rate_limited", "status": 429, "code": "rate_limit_exceeded", "retryAfter": 7.0},
        ),
        (
            ContextTooLong("Too long", tokens=210, limit=200),
            "Too long. Start a new chat or remove attachments.",
            {"kind": "context_too_long", "tokens": 210, "limit": 200},
        ),
        (
            ServerFailed("", request_id="req_1"),
            "The gateway gave no reason.",
            {"kind": "server", "requestId": "req_1"},
        ),
        (
            Disconnected("The gateway hung up"),
            "The gateway hung up. The partial answer was kept. Try again.",
            {"kind": "disconnected"},
        ),
    ],
)
def test_an_error_is_encoded_as_message_and_data(
    error: BridgeError, sentence: str, facts: dict[str, Any]
) -> None:
    assert encode_error(error) == (sentence, facts)


def test_an_error_with_its_own_advice_gives_that() -> None:
    error = SettingsUnusable("The file is not TOML.", "Correct it.")
    assert encode_error(error)[0] == "The file is not TOML. Correct it."
