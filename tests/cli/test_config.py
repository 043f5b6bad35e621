from __future__ import annotations

import json
from pathlib import Path

from tests.cli.cli_process import tollbridge

KEY = "tk-0123456789-secret"
FILE = """\
model = "anthropic/claude-sonnet-4.5"
proxy = "http://user:hush-hush@proxy.example:3128"

[accounts.work]
key = "environment:WORK_KEY"

[models."anthropic/*".provider_options.gateway]
order = ["bedrock"]
byok.anthropic = [{ apiKey = "sk-hush-hush" }]
"""


async def rows(*arguments: str, **env: str) -> dict[str, tuple[object, str]]:
    result = await tollbridge("config", "--json", *arguments, env=env)
    assert (result.code, result.err) == (0, "")
    assert KEY not in result.out
    found = [json.loads(line) for line in result.out.splitlines()]
    return {row["setting"]: (row["value"], row["origin"]) for row in found}


async def test_every_setting_is_shown_with_its_source(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    shown = await rows(
        *("--account", "work", "--allow-http"),
        TOLLBRIDGE_CONFIG=str(path),
        TOLLBRIDGE_TIMEOUT_IDLE="7",
        WORK_KEY=KEY,
    )
    assert shown["model"] == ("anthropic/claude-sonnet-4.5", f"the file {path}, line 1")
    assert shown["account"] == ("work", "option --account")
    assert shown["allow_http"] == (True, "option --allow-http")
    assert shown["timeouts.idle"] == (7.0, "environment TOLLBRIDGE_TIMEOUT_IDLE")
    assert shown["timeouts.connect"] == (15.0, "default")
    assert shown['models."anthropic/*".provider_options.gateway.order'] == (
        ["bedrock"],
        f"the file {path}, line 8",
    )
    assert shown["key (work)"] == ("set (environment WORK_KEY)", "https://ai-gateway.vercel.sh/v1")


async def test_the_table_shows_no_secrets(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    env = {"TOLLBRIDGE_CONFIG": str(path), "WORK_KEY": KEY, "COLUMNS": "200"}
    result = await tollbridge("config", env=env)
    assert result.code == 0
    assert "set (environment WORK_KEY)" in result.out
    assert "file, line 1" in result.out
    assert f"Settings file: {path}" in result.out
    assert "hush-hush" not in result.out
    assert KEY not in result.out


async def test_advice_for_settings_errors_does_not_mention_options(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("model = ")
    env = {"TOLLBRIDGE_CONFIG": str(path)}
    result = await tollbridge("models", env=env)
    assert result.err.endswith(" Fix it, or set TOLLBRIDGE_CONFIG to another file.\n")
    path.write_text("")
    result = await tollbridge("models", "--account", "nobody", env=env)
    assert result.err == f'Error: Account "nobody" not found in {path} (no accounts configured).\n'


async def test_an_error_in_the_file_is_one_line_that_names_the_setting(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("\n[timeouts]\nidel = 3\n")
    for command in (("config",), ("models",), ("ask", "hi"), ("login",)):
        result = await tollbridge(*command, env={"TOLLBRIDGE_CONFIG": str(path)})
        assert (result.code, result.out) == (1, "")
        assert result.err == (
            'Error: timeouts.idel: unknown setting. Did you mean "idle"? '
            f"(the file {path}, line 3). Correct this setting.\n"
        )
