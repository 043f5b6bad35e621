from __future__ import annotations

from typing import get_args

import pytest

from tollbridge.cli.errors import ADVICE, DEFAULT_ADVICE, ConnectionKind, explain
from tollbridge.config.keys import KeyringUnusable
from tollbridge.config.loading import SettingsUnusable
from tollbridge.local.fetch import LocalModelFailed
from tollbridge.storage.database import StoreBusy, StoreUnusable
from tollbridge.types.errors import (
    BridgeError,
    Kind,
    NotAuthenticated,
    NotFound,
    RateLimited,
    RequestError,
    ServerFailed,
    StreamError,
)


def test_every_kind_of_error_says_what_to_do() -> None:
    assert set(ADVICE) == set(get_args(Kind))
    assert set(DEFAULT_ADVICE) == set(get_args(ConnectionKind))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            NotAuthenticated("Bad key", status=401),
            "Bad key. [HTTP 401] "
            "Set TOLLBRIDGE_API_KEY (or AI_GATEWAY_API_KEY) to a key that this gateway accepts.",
        ),
        (
            NotFound("404 no such page", status=404, request_id="r-1"),
            "404 no such page. [request r-1] "
            "Check --base-url and --model; this lists what there is: tollbridge models.",
        ),
        (RateLimited("Slow down!", retry_after=12.4), "Slow down! Try again in 12 s."),
        (RateLimited("Slow down"), "Slow down. Try again later, or choose another model."),
        (LocalModelFailed("Port 1 is taken.", "Choose another."), "Port 1 is taken. Choose another."),
        (
            RequestError("There is no name"),
            "There is no name. Check what was given: --help says what each option takes.",
        ),
        (
            SettingsUnusable("Account 'x' not found (no accounts configured)."),
            "Account 'x' not found (no accounts configured).",
        ),
        (SettingsUnusable("It is not valid TOML.", "Fix it."), "It is not valid TOML. Fix it."),
        (KeyringUnusable("The keyring is locked."), "The keyring is locked."),
        (
            StoreUnusable("The disk is full"),
            "The disk is full. "
            "Look at the data folder (its permissions, its space), or name another with TOLLBRIDGE_DATA_DIR.",
        ),
        (
            StoreBusy("The file is locked"),
            "The file is locked. Try again when the other program has written what it had to.",
        ),
        (
            ServerFailed(""),
            "The gateway failed (server). Try again; if it goes on, the gateway's operator must look at it.",
        ),
    ],
)
def test_an_error_is_a_sentence_and_what_to_do(error: BridgeError, told: str) -> None:
    assert explain(error) == told


def test_what_helps_depends_on_whom_was_asked() -> None:
    error = NotAuthenticated("Bad key", status=401)
    assert "AI_GATEWAY_API_KEY" in explain(error, "ai-sdk")
    assert "AI_GATEWAY_API_KEY" not in explain(error, "ui-stream")
    assert "/v1" not in explain(StreamError("Odd"), "ai-sdk")


def test_a_servers_words_do_not_drive_the_terminal() -> None:
    told = explain(ServerFailed("\x1b]0;owned\x07 two\nlines\x9b31m", request_id="a\x1bb"))
    assert told.isprintable()
    assert "two lines" in told
