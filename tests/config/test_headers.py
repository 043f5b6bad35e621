"""Extra request headers: what is valid, who receives them, and that secret values appear nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.cli.cli_process import tollbridge
from tests.frontends.stdio.stdio_client import Editor, Refusal

from tollbridge import BridgeError, Engine, Settings
from tollbridge.config.accounts import resolve_account
from tollbridge.config.errors import SettingsError, SettingsUnusable
from tollbridge.config.headers import header_problem
from tollbridge.config.loading import LoadedSettings, load_settings
from tollbridge.config.schema import SecretHeader
from tollbridge.protocols import BACKENDS, Backend
from tollbridge.testing.server import Gateway

MODEL = "tollbridge/demo"
SECRET = "pk-portkey-5f3a9b7c1d2e4f60"
SOURCE = {"secret": "environment:PORTKEY_KEY"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-portkey-provider", "openai"),
        ("X-Title", "My editor, version 2"),
        ("x-tenant-id", "123e4567-e89b-12d3-a456-426614174000"),
        ("anthropic-beta", "token-efficient-tools-2025-02-19,output-128k-2025-02-19"),
        ("x-max-tokens-per-minute", "90000"),
        ("http-referer", "https://example.com/some/long/path/with/many/words/in/it"),
    ],
)
def test_a_value_that_is_no_key_is_valid(name: str, value: str) -> None:
    assert header_problem(name, value) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-portkey-api-key", "short"),
        ("Authorization", "anything"),
        ("x-auth-token", "anything"),
        ("cookie", "a=b"),
        ("x-extra", "Bearer abc"),
        ("x-extra", "sk-1234567890abcdef"),
        ("x-extra", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
        ("x-extra", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    ],
)
def test_a_value_that_looks_like_a_key_is_refused_with_advice(name: str, value: str) -> None:
    problem = header_problem(name, value)
    assert problem is not None
    assert '{ secret = "environment:NAME" }' in problem
    assert value not in problem
    assert header_problem(name, SecretHeader(secret="environment:NAME")) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bad name", "a"),
        ("bad\nname", "a"),
        ("x-a", "line\r\nx-b: break"),
        ("x-a", ""),
        ("x-a", "ü"),
        ("Content-Length", "3"),
        ("host", "attacker.example"),
        ("x-a", SecretHeader(secret=SECRET)),
        ("x-a", SecretHeader(secret="environment:")),
    ],
)
def test_what_would_break_a_request_is_refused(name: str, value: str | SecretHeader) -> None:
    problem = header_problem(name, value)
    assert problem is not None
    assert SECRET not in problem


FILE = """
base_url = "https://gateway.example/v1"
headers = { x-file = "1" }

[accounts.portkey]
base_url = "https://portkey.example/v1"
headers = { x-portkey-provider = "openai", x-portkey-api-key = { secret = "environment:PORTKEY_KEY" } }
"""


def loaded(folder: Path, text: str = FILE, **layers: Mapping[str, Any]) -> LoadedSettings:
    path = folder / "config.toml"
    path.write_text(text)
    return load_settings(
        layers.get("flags"), editor=layers.get("editor"), environ={"TOLLBRIDGE_CONFIG": str(path)}
    )


def test_an_account_has_its_own_headers_and_those_of_the_command_line(tmp_path: Path) -> None:
    flags = {"account": "portkey", "headers": {"x-option": "2"}}
    account = resolve_account(loaded(tmp_path, flags=flags))
    assert account.headers == {
        "x-portkey-provider": "openai",
        "x-portkey-api-key": SecretHeader(secret="environment:PORTKEY_KEY"),
        "x-option": "2",
    }


@pytest.mark.parametrize(
    ("layers", "headers"),
    [
        ({}, {"x-file": "1"}),
        ({"flags": {"base_url": "https://other.example/v1"}}, {}),
        ({"flags": {"base_url": "https://other.example/v1", "headers": {"x-file": "2"}}}, {"x-file": "2"}),
        (
            {"flags": {"headers": {"x-file": {"secret": "keyring:a"}}}},
            {"x-file": SecretHeader(secret="keyring:a")},
        ),
        ({"editor": {"headers": {"x-editor": "3"}}}, {"x-file": "1"}),
    ],
)
def test_headers_are_not_sent_to_a_gateway_that_another_source_chose(
    layers: dict[str, Any], headers: dict[str, Any], tmp_path: Path
) -> None:
    assert resolve_account(loaded(tmp_path, **layers)).headers == headers


def test_an_error_names_the_setting_and_its_place_but_not_the_value(tmp_path: Path) -> None:
    text = f'[accounts.portkey.headers]\nx-portkey-api-key = "{SECRET}"\n'
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text)
    assert caught.value.message.startswith("accounts.portkey.headers.x-portkey-api-key: looks like a key")
    assert caught.value.message.endswith("config.toml, line 2)")
    assert SECRET not in caught.value.message


async def test_headers_reach_the_gateway_and_a_secret_is_in_no_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKEY_KEY", SECRET)
    async with Gateway() as gateway:
        account = {"base_url": gateway.url, "headers": {"X-Provider": "openai", "x-portkey-api-key": SOURCE}}
        settings = {"account": "p", "accounts": {"p": account}, "record": str(tmp_path)}
        async with Engine.open(settings, persistent=False) as engine:
            await engine.models(refresh=True)
            await engine.create(f"Repeat {SECRET}", model=MODEL)
            assert SECRET not in repr(await engine.account())
        listed, turn = [arrival.headers for arrival in gateway.requests if arrival.path.count("/") == 2]
    for headers in (listed, turn):
        assert (headers["x-provider"], headers["x-portkey-api-key"]) == ("openai", SECRET)
    (recording,) = tmp_path.glob("*.jsonl")
    assert SECRET not in recording.read_text()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_headers_are_sent_in_every_protocol(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTKEY_KEY", SECRET)
    async with Gateway() as gateway:
        headers = {"x-provider": "openai", "x-portkey-api-key": SOURCE}
        accounts = {"p": {"base_url": gateway.url, "backend": backend, "headers": headers}}
        async with Engine.open({"accounts": accounts}, persistent=False) as engine:
            await engine.create("Hello", account="p", model=MODEL)
        (arrival,) = gateway.requests
    assert (arrival.headers["x-provider"], arrival.headers["x-portkey-api-key"]) == ("openai", SECRET)


async def test_accounts_of_one_gateway_have_separate_headers() -> None:
    async with Gateway() as gateway:
        accounts = {name: {"base_url": gateway.url, "headers": {"x-team": name}} for name in ("a", "b")}
        async with Engine.open({"accounts": accounts}, persistent=False) as engine:
            for name in ("a", "b", "a"):
                await engine.create("Hello", account=name, model=MODEL)
        assert [arrival.headers["x-team"] for arrival in gateway.requests] == ["a", "b", "a"]


async def test_a_secret_that_an_error_quotes_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheme is not secret, the rest is: a server may quote either."""
    monkeypatch.setenv("GATEWAY_LOGIN", f"Basic {SECRET}")

    async def quote(request: web.Request) -> web.Response:
        login = request.headers["Authorization"]
        message = f"Login {login} failed; {login.split()[1]} is unknown."
        return web.json_response({"error": {"message": message}}, status=401)

    app = web.Application()
    app.router.add_post("/v1/responses", quote)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    headers = {"authorization": SecretHeader(secret="environment:GATEWAY_LOGIN")}
    try:
        async with Engine.open(Settings(base_url=url, headers=headers), persistent=False) as engine:
            with pytest.raises(BridgeError) as caught:
                await engine.create("Hello", model=MODEL)
    finally:
        await runner.cleanup()
    assert caught.value.message == "Login [key] failed; [key] is unknown."


async def test_a_secret_that_is_not_set_is_named_by_its_source() -> None:
    headers = {"x-key": SecretHeader(secret="environment:TB_NOT_SET")}
    async with Engine.open(Settings(base_url="http://127.0.0.1:9/v1", headers=headers)) as engine:
        with pytest.raises(
            SettingsUnusable, match="x-key needs the environment variable TB_NOT_SET, which is not set"
        ):
            await engine.create("Hello", model=MODEL)


async def test_headers_on_the_command_line() -> None:
    async with Gateway() as gateway:
        where = ("ask", "Hello", "--base-url", gateway.url, "--model", MODEL)
        options = (
            "--header",
            "X-Provider: openai",
            "--secret-header",
            "x-portkey-key: environment:PORTKEY_KEY",
        )
        answered = await tollbridge(*where, *options, env={"PORTKEY_KEY": SECRET})
        refused = await tollbridge(*where, "--header", f"x-portkey-key: {SECRET}")
        malformed = await tollbridge(*where, "--header", SECRET)
        not_a_source = await tollbridge(*where, "--secret-header", f"x-portkey-key: {SECRET}")
        headers = [arrival.headers for arrival in gateway.requests if arrival.path.endswith("/responses")]
    assert answered.code == 0
    assert [(each["x-provider"], each["x-portkey-key"]) for each in headers] == [("openai", SECRET)]
    assert refused.code == malformed.code == not_a_source.code == 2
    assert "'--header': x-portkey-key: looks like a key" in " ".join(refused.err.split())
    assert "'--secret-header': x-portkey-key: secret must be" in " ".join(not_a_source.err.split())
    assert SECRET not in refused.err + malformed.err + not_a_source.err


async def test_headers_of_the_editors_account() -> None:
    async with Gateway() as gateway, Editor(env={"PORTKEY_KEY": SECRET}) as editor:
        await editor.initialize()
        account = {"baseUrl": gateway.url, "headers": {"x-provider": "openai", "x-portkey-key": SOURCE}}
        await editor.request("models", {"account": account, "refresh": True})
        assert gateway.requests[-1].headers["x-provider"] == "openai"
        assert gateway.requests[-1].headers["x-portkey-key"] == SECRET
        with pytest.raises(Refusal) as caught:
            await editor.request("models", {"account": {**account, "headers": {"x-portkey-key": SECRET}}})
    assert "looks like a key" in str(caught.value)
    assert SECRET not in str(caught.value) + editor.stderr
