from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.cli.cli_process import terminal, tollbridge

from tollbridge.testing.server import Gateway

KEY = "tk-0123456789-secret"
ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with its own keyring."""
    return {
        "PYTHON_KEYRING_BACKEND": "tests.cli.file_keyring.FileKeyring",
        "PYTHONPATH": os.pathsep.join([ROOT, f"{ROOT}/src"]),
        "TEST_KEYRING": str(tmp_path / "keyring.json"),
        "TOLLBRIDGE_DATA_DIR": str(tmp_path / "data"),
        "TOLLBRIDGE_CONFIG": str(tmp_path / "config.toml"),
    }


def write_config(env: dict[str, str], **accounts: str) -> None:
    lines = [f'[accounts.{name}]\nbase_url = "{url}"' for name, url in accounts.items()]
    Path(env["TOLLBRIDGE_CONFIG"]).write_text("\n".join(lines))


async def key_source(env: dict[str, str]) -> object:
    rows = map(json.loads, (await tollbridge("config", "--json", env=env)).out.splitlines())
    return next(row["value"] for row in rows if row["setting"] == "key (work)")


async def test_a_key_from_the_keyring_is_sent_only_to_its_gateway(env: dict[str, str]) -> None:
    async with Gateway(api_key=KEY) as gateway, Gateway() as other:
        write_config(env, work=gateway.url, play=other.url)
        saved = await tollbridge("login", "work", env=env, stdin=f"{KEY}\n".encode())
        assert (saved.code, saved.out) == (0, "")
        assert saved.err == f"Saved the key for work ({gateway.url}) in the system keyring.\n"
        question = ("ask", "hello", "--model", "tollbridge/demo", "--account")
        right = await tollbridge(*question, "work", env=env)
        await tollbridge(*question, "play", env=env)
        assert right.code == 0
        assert "authorization" not in {name.lower() for name in other.requests[-1].headers}
        write_config(env, work=other.url)
        await tollbridge(*question, "work", env=env)
        # The account has a new URL; the key is stored for the old one.
        assert "authorization" not in {name.lower() for name in other.requests[-1].headers}


async def test_a_typed_key_is_not_echoed(env: dict[str, str]) -> None:
    write_config(env, work="https://work.example/v1")
    async with terminal("login", "work", env=env) as screen:
        await screen.expect("API key for work (input hidden): ")
        screen.type(f"{KEY}\n")
        seen = await screen.expect("Saved the key for work")
        assert await screen.ended() == 0
    assert KEY not in seen
    assert json.loads(Path(env["TEST_KEYRING"]).read_text()) == {
        "tollbridge/work at https://work.example/v1": KEY
    }


async def test_logout_removes_the_key(env: dict[str, str]) -> None:
    write_config(env, work="https://work.example/v1")
    await tollbridge("login", "work", env=env, stdin=KEY.encode())
    assert await key_source(env) == "set (keyring)"
    first, second = [await tollbridge("logout", "work", env=env) for _ in range(2)]
    assert (first.code, second.code) == (0, 1)
    assert "Removed the key for work" in first.err
    assert "No key for work" in second.err
    assert json.loads(Path(env["TEST_KEYRING"]).read_text()) == {}
    assert await key_source(env) == "not set"


async def test_without_a_keyring_the_error_says_what_to_do(env: dict[str, str]) -> None:
    write_config(env, work="https://work.example/v1")
    none = {**env, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    result = await tollbridge("login", "work", env=none, stdin=KEY.encode())
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: No usable system keyring found")
    assert result.err.endswith("Set TOLLBRIDGE_API_KEY instead.\n")


@pytest.mark.parametrize("key", [b"", b"\n", b"two words\n", "schlüssel".encode()])
async def test_an_invalid_key_is_not_stored(env: dict[str, str], key: bytes) -> None:
    write_config(env, work="https://work.example/v1")
    result = await tollbridge("login", "work", env=env, stdin=key)
    assert result.code != 0
    assert not Path(env["TEST_KEYRING"]).exists()
