from __future__ import annotations

from typing import get_args

import pytest

from tollbridge.cli.errors import ADVICE, explain
from tollbridge.config.errors import SettingsUnusable
from tollbridge.config.keyring import KeyringUnusable
from tollbridge.local.process import LocalModelFailed
from tollbridge.protocols import all_protocols
from tollbridge.storage.store import StoreBusy, StoreUnusable
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


def test_there_is_advice_for_every_kind_of_error() -> None:
    for protocol in all_protocols():
        assert {*ADVICE, *protocol.advice} == set(get_args(Kind)), protocol.name


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            NotAuthenticated("Bad key", status=401),
            "Bad key. [HTTP 401] "
            "Check the API key: run `tollbridge login`, or set TOLLBRIDGE_API_KEY or AI_GATEWAY_API_KEY.",
        ),
        (
            NotFound("404 no such page", status=404, request_id="r-1"),
            "404 no such page. [request r-1] "
            "Check --base-url and --model. Run `tollbridge models` to list models.",
        ),
        (RateLimited("Slow down!", retry_after=12.4), "Slow down! Try again in 12 s."),
        (RateLimited("Slow down"), "Slow down. Try again later, or choose another model."),
        (LocalModelFailed("Port 1 is taken.", "Choose another."), "Port 1 is taken. Choose another."),
        (
            RequestError("There is no name"),
            "There is no name. See --help for the options.",
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
            "Check permissions and disk space of the data directory, "
            "or choose another with TOLLBRIDGE_DATA_DIR.",
        ),
        (
            StoreBusy("The file is locked"),
            "The file is locked. Another process is using the database. Try again.",
        ),
        (
            ServerFailed(""),
            "The gateway failed (server). Try again. If it keeps failing, contact the gateway's operator.",
        ),
    ],
)
def test_an_error_is_explained_with_its_message_and_advice(error: BridgeError, text: str) -> None:
    assert explain(error) == text


def test_the_advice_depends_on_the_kind_of_connection() -> None:
    error = NotAuthenticated("Bad key", status=401)
    assert "AI_GATEWAY_API_KEY" in explain(error, "ai-sdk")
    assert "AI_GATEWAY_API_KEY" not in explain(error, "ui-stream")
    assert "/v1" not in explain(StreamError("Odd"), "ai-sdk")


def test_the_advice_repeats_the_options_and_names_a_missing_version() -> None:
    error = NotFound("Not Found", status=404)
    arguments = " --base-url http://127.0.0.1:9 --backend chat-completions"
    text = explain(error, "chat-completions", base_url="http://127.0.0.1:9", arguments=arguments)
    assert text == (
        "Not Found. [HTTP 404] Check --base-url, which usually ends in /v1, and --model. "
        f"Run `tollbridge models{arguments}` to list models."
    )
    assert "/v1" not in explain(error, base_url="https://host/v1/")
    assert "/v1" not in explain(error, "ai-sdk", base_url="https://host/v4/ai")


def test_control_characters_in_a_servers_message_are_replaced() -> None:
    text = explain(ServerFailed("\x1b]0;owned\x07 two\nlines\x9b31m", request_id="a\x1bb"))
    assert text.isprintable()
    assert "two lines" in text
