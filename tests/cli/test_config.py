from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.cli_process import tollbridge

from tollbridge.config.names import split_name
from tollbridge.config.toml_text import change_value, find_lines

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
    entries = [json.loads(line) for line in result.out.splitlines()]
    return {row["setting"]: (row["value"], row["origin"]) for row in entries}


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


async def test_a_timeout_of_zero_is_shown_as_no_limit() -> None:
    result = await tollbridge(
        "config", env={"TOLLBRIDGE_TIMEOUT_IDLE": "0", "TOLLBRIDGE_TIMEOUT_CONNECT": "0"}
    )
    lines = [line.split() for line in result.out.splitlines() if line.startswith("timeouts.")]
    assert {name: value for name, value, *_ in lines} == {
        "timeouts.connect": "0",
        "timeouts.idle": "0",
        "timeouts.total": "0",
    }
    assert sum(line[2:4] == ["(no", "limit)"] for line in lines) == 3


async def test_an_invalid_setting_whose_name_begins_like_the_new_one_is_named_with_its_place(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('modell = "x"\n')
    result = await tollbridge("config", "set", "model", "y", env={"TOLLBRIDGE_CONFIG": str(path)})
    assert result.code == 1
    assert result.err.startswith('Error: modell: unknown setting. Did you mean "model"? (the file')
    assert path.read_text() == 'modell = "x"\n'


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
    assert result.err == (
        f'Error: Account "nobody" not found in {path} (no accounts configured). '
        "Add it with `tollbridge config set accounts.nobody.base_url URL`, or choose no account.\n"
    )


async def test_a_file_that_cannot_be_changed_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    env = {"TOLLBRIDGE_CONFIG": str(path), "COLUMNS": "300", "EDITOR": "false", "VISUAL": ""}
    path.write_bytes(b'model = "\xff"\n')
    changed = await tollbridge("config", "set", "model", "m", env=env)
    path.write_text("")
    edited = await tollbridge("config", "edit", env=env)
    assert (changed.code, edited.code) == (1, 1)
    assert changed.err == (
        f"Error: The settings file {path} is not UTF-8 text (byte 9). Fix it, or set TOLLBRIDGE_CONFIG to "
        "another file.\n"
    )
    assert f"Set VISUAL or EDITOR to another editor, or edit {path} directly." in edited.err


async def test_an_error_in_the_file_is_one_line_that_names_the_setting(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("\n[timeouts]\nidel = 3\n")
    for command in (("models",), ("ask", "hi"), ("login",)):
        result = await tollbridge(*command, env={"TOLLBRIDGE_CONFIG": str(path)})
        assert (result.code, result.out) == (1, "")
        assert result.err == (
            'Error: timeouts.idel: unknown setting. Did you mean "idle"? '
            f"(the file {path}, line 3). Correct this setting.\n"
        )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n[timeouts]\nidel = 3\n", 'timeouts.idel: unknown setting. Did you mean "idle"?'),
        ("model = ", "is not valid TOML"),
    ],
)
async def test_a_broken_file_does_not_hide_other_settings(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    env = {"TOLLBRIDGE_CONFIG": str(path), "TOLLBRIDGE_MODEL": "openai/gpt-5"}
    result = await tollbridge("config", "--json", env=env)
    values = {row["setting"]: row["value"] for row in map(json.loads, result.out.splitlines())}
    assert (result.code, values["model"], values["timeouts.idle"]) == (1, "openai/gpt-5", 300.0)
    assert problem in result.err
    assert result.err.endswith("The settings above are those without the file.\n")


COMMENTED = """\
# My settings.
model = "a/b"  # the "default" # model
allow = [
    "x/*",  # all of x
]

[timeouts]
idle = 5  # seconds

[accounts."my work"]
key = "none"
"""


@pytest.mark.parametrize(
    ("name", "value", "before", "after"),
    [
        ("model", "c/d", 'model = "a/b"  # the', 'model = "c/d"  # the'),
        ("model", "5", '"a/b"', '"5"'),
        ("timeouts.idle", "30", "idle = 5  # s", "idle = 30  # s"),
        ("timeouts.total", "1.5", "idle = 5  # seconds\n", "idle = 5  # seconds\ntotal = 1.5\n"),
        ("allow", "y/*, z", 'allow = [\n    "x/*",  # all of x\n]', 'allow = ["y/*", "z"]'),
        ("deny", "z", "]\n\n[timeouts]", ']\ndeny = ["z"]\n\n[timeouts]'),
        ('accounts."my work".key', "keyring", 'key = "none"', 'key = "keyring"'),
        (
            'models."a/*".parameters.temperature',
            "0.2",
            'key = "none"\n',
            'key = "none"\n\n[models."a/*".parameters]\ntemperature = 0.2\n',
        ),
    ],
)
async def test_a_setting_is_changed_and_the_rest_of_the_file_stays(
    name: str, value: str, before: str, after: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(COMMENTED)
    path.chmod(0o640)
    result = await tollbridge("config", "set", name, value, env={"TOLLBRIDGE_CONFIG": str(path)})
    assert (result.code, result.out) == (0, ""), result.err
    assert path.read_text() == COMMENTED.replace(before, after)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_a_setting_is_written_to_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    env = {"TOLLBRIDGE_CONFIG": str(path)}
    for name, value in (("timeouts.idle", "30"), ("keep_conversations", "true"), ("model", "a/b")):
        assert (await tollbridge("config", "set", name, value, env=env)).code == 0
    assert path.read_text() == 'keep_conversations = true\nmodel = "a/b"\n\n[timeouts]\nidle = 30\n'
    for name in ("model", "timeouts"):
        assert (await tollbridge("config", "unset", name, env=env)).code == 0
    assert path.read_text() == "keep_conversations = true\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("set", "modle", "x"), 'modle: unknown setting. Did you mean "model"? Nothing was saved.\n'),
        (("set", "zzz", "x"), "models. Nothing was saved.\n"),
        (
            ("set", "timeouts.idle", "soon"),
            'timeouts.idle cannot be "soon": expected a number, got a string. Nothing was saved.\n',
        ),
        (
            ("set", "keep_conversations", "maybe"),
            'keep_conversations cannot be "maybe": expected true or false, got a string. Nothing was saved',
        ),
        (("set", "timeouts.idle", "-5"), 'timeouts.idle cannot be "-5": must be a number ≥ 0. Nothing was'),
        (("set", "timeouts.idle", "nan"), 'timeouts.idle cannot be "nan": must be a number ≥ 0. Nothing was'),
        (("set", "budgets.day", "nan"), 'budgets.day cannot be "nan": must be a number ≥ 0. Nothing was'),
        (("set", "budgets.day", "x"), 'budgets.day cannot be "x": expected a number. Nothing was saved.\n'),
        (("set", "backend", "x"), 'backend: invalid value "x". Valid values: openresponses'),
        (("set", "accounts.w.key", KEY), "accounts.w.key: must be auto, keyring, none or environment:NAME"),
    ],
)
async def test_an_invalid_change_is_not_written(
    arguments: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    await check_refusal(arguments, 2, problem, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("set", "model.name", "x"), "config.toml: model is not a table. Run `tollbridge config edit`."),
        (("unset", "deny"), "deny is not in the settings file."),
    ],
)
async def test_a_change_that_the_file_does_not_allow_is_not_written(
    arguments: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    await check_refusal(arguments, 1, problem, tmp_path)


async def check_refusal(arguments: tuple[str, ...], code: int, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(COMMENTED)
    result = await tollbridge("config", *arguments, env={"TOLLBRIDGE_CONFIG": str(path), "COLUMNS": "300"})
    assert result.code == code
    assert problem in result.err
    assert "Correct this setting" not in result.err
    assert KEY not in result.err
    assert path.read_text() == COMMENTED


_KEYS = st.sampled_from(["model", "proxy", "account", "timeouts.idle", 'models."a/*".name', "accounts.w.key"])


@given(changes=st.lists(st.tuples(_KEYS, st.text("ab \\\"'#=[]{}\n.é", max_size=8)), max_size=6))
def test_whatever_is_set_is_read_again(changes: list[tuple[str, str]]) -> None:
    text = COMMENTED
    expected = {}
    for name, value in changes:
        text = change_value(text, split_name(name), json.dumps(value))
        expected[name] = value
    for name, value in expected.items():
        table: Any = tomllib.loads(text)
        for key in split_name(name):
            table = table[key]
        assert table == value
    assert "# all of x" in text


LAYOUTS = """\
models.a.name = "x"
text = '''
model = "inside"
[timeouts]
'''
budgets = { day = 3, accounts = { w = { day = 1 } } }

[accounts."my.work"]
key = "none"
  [models."b/*".parameters]  # indented
  temperature = 0.2
"""


def test_the_line_of_a_setting_is_found_however_it_is_written() -> None:
    lines = find_lines(LAYOUTS)
    assert {".".join(keys): line for keys, line in lines.items()} == {
        "models": 1,
        "models.a": 1,
        "models.a.name": 1,
        "text": 2,
        "budgets": 6,
        "budgets.day": 6,
        "budgets.accounts": 6,
        "budgets.accounts.w": 6,
        "budgets.accounts.w.day": 6,
        "accounts": 8,
        "accounts.my.work": 8,
        "accounts.my.work.key": 9,
        "models.b/*": 10,
        "models.b/*.parameters": 10,
        "models.b/*.parameters.temperature": 11,
    }
    assert find_lines("model = ") == {}


@pytest.mark.parametrize(
    ("keys", "literal", "before", "after"),
    [
        (["budgets", "day"], "4", "{ day = 3,", "{ day = 4,"),
        (["models", "a", "name"], "'y'", '"x"', "'y'"),
        (["models", "b/*", "parameters", "temperature"], "1", "0.2", "1"),
    ],
)
def test_a_value_is_changed_however_it_is_written(
    keys: list[str], literal: str, before: str, after: str
) -> None:
    assert change_value(LAYOUTS, keys, literal) == LAYOUTS.replace(before, after)


def test_a_value_or_a_table_is_removed() -> None:
    assert change_value(COMMENTED, ["model"], None) == COMMENTED.replace(
        'model = "a/b"  # the "default" # model\n', ""
    )
    assert "my work" not in change_value(COMMENTED, ["accounts", "my work"], None)
    assert change_value(COMMENTED, ["timeouts", "total"], None) == COMMENTED


async def test_a_file_with_other_line_ends_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b'# mine\r\nmodel = "a"\r\n')
    result = await tollbridge("config", "set", "model", "b", env={"TOLLBRIDGE_CONFIG": str(path)})
    assert (result.code, path.read_bytes()) == (0, b'# mine\r\nmodel = "b"\r\n')


async def test_the_file_is_checked_after_it_was_edited(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho 'modle = 1' >> \"$1\"\n")
    editor.chmod(0o755)
    result = await tollbridge("config", "edit", env={"TOLLBRIDGE_CONFIG": str(path), "VISUAL": str(editor)})
    assert result.code == 1
    assert 'modle: unknown setting. Did you mean "model"?' in result.err
    assert path.read_text().startswith("# Settings of Tollbridge.")
