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
    """A machine with a keyring of its own."""
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


async def described(env: dict[str, str]) -> object:
    rows = map(json.loads, (await tollbridge("config", "--json", env=env)).out.splitlines())
    return next(row["value"] for row in rows if row["setting"] == "key of work")


async def test_a_key_from_the_keyring_reaches_its_gateway_and_no_other(env: dict[str, str]) -> None:
    async with Gateway(api_key=KEY) as gateway, Gateway() as other:
        write_config(env, work=gateway.url, play=other.url)
        given = await tollbridge("login", "work", env=env, stdin=f"{KEY}\n".encode())
        assert (given.code, given.out) == (0, "")
        assert given.err == f"The key of work ({gateway.url}) is in the system's keyring.\n"
        question = ("ask", "hello", "--model", "tollbridge/demo", "--account")
        right = await tollbridge(*question, "work", env=env)
        await tollbridge(*question, "play", env=env)
        assert right.code == 0
        assert "authorization" not in {name.lower() for name in other.requests[-1].headers}
        write_config(env, work=other.url)
        await tollbridge(*question, "work", env=env)
        # The account has moved, and its key has not moved along.
        assert "authorization" not in {name.lower() for name in other.requests[-1].headers}


async def test_a_key_that_is_typed_is_not_shown(env: dict[str, str]) -> None:
    write_config(env, work="https://work.example/v1")
    async with terminal("login", "work", env=env) as screen:
        await screen.expect("not shown: ")
        screen.type(f"{KEY}\n")
        seen = await screen.expect("is in the system's keyring")
        assert await screen.ended() == 0
    assert KEY not in seen
    assert json.loads(Path(env["TEST_KEYRING"]).read_text()) == {
        "tollbridge/work at https://work.example/v1": KEY
    }


async def test_logging_out_takes_the_key_away(env: dict[str, str]) -> None:
    write_config(env, work="https://work.example/v1")
    await tollbridge("login", "work", env=env, stdin=KEY.encode())
    assert await described(env) == "set (keyring)"
    first, second = [await tollbridge("logout", "work", env=env) for _ in range(2)]
    assert (first.code, second.code) == (0, 1)
    assert "is forgotten" in first.err
    assert "is not in the system's keyring" in second.err
    assert json.loads(Path(env["TEST_KEYRING"]).read_text()) == {}
    assert await described(env) == "not set"


async def test_a_machine_without_a_keyring_is_told_what_to_do_instead(env: dict[str, str]) -> None:
    write_config(env, work="https://work.example/v1")
    none = {**env, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    result = await tollbridge("login", "work", env=none, stdin=KEY.encode())
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: This machine has no keyring that can be used")
    assert result.err.endswith("Set TOLLBRIDGE_API_KEY instead.\n")


@pytest.mark.parametrize("given", [b"", b"\n", b"two words\n", "schlüssel".encode()])
async def test_what_is_no_key_is_not_kept(env: dict[str, str], given: bytes) -> None:
    write_config(env, work="https://work.example/v1")
    result = await tollbridge("login", "work", env=env, stdin=given)
    assert result.code != 0
    assert not Path(env["TEST_KEYRING"]).exists()
