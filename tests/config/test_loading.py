from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tollbridge.config.accounts import resolve_account
from tollbridge.config.errors import SettingsError, SettingsUnusable
from tollbridge.config.file import SIZE_LIMIT, read_file
from tollbridge.config.loading import LoadedSettings, load_settings
from tollbridge.types.errors import RequestError

FILE = """\
model = "of/the-file"
deny = ["*-preview"]

[timeouts]
idle = 60

[accounts.work]
base_url = "https://work.example/v1"
backend = "ai-sdk"
key = "environment:WORK_KEY"

[models."anthropic/*".provider_options.gateway]
order = ["bedrock"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    return path


def loaded(
    path: Path, flags: Mapping[str, Any] | None = None, editor: Mapping[str, Any] | None = None, **env: str
) -> LoadedSettings:
    return load_settings(flags, editor=editor, environ={"TOLLBRIDGE_CONFIG": str(path), **env})


@pytest.mark.parametrize(
    ("flags", "env", "editor", "model", "origin"),
    [
        ({"model": "f"}, {"TOLLBRIDGE_MODEL": "e"}, {"model": "d"}, "f", "option --model"),
        ({"model": None}, {"TOLLBRIDGE_MODEL": "e"}, {"model": "d"}, "e", "environment TOLLBRIDGE_MODEL"),
        ({}, {"TOLLBRIDGE_MODEL": " "}, {"model": "d"}, "of/the-file", "the file {path}, line 1"),
    ],
)
def test_flags_override_the_environment_which_overrides_the_file(
    path: Path,
    flags: dict[str, object],
    env: dict[str, str],
    editor: dict[str, object],
    model: str,
    origin: str,
) -> None:
    result = loaded(path, flags, editor, **env)
    assert result.settings.model == model
    assert result.origin("model") == origin.format(path=path)


def test_the_file_overrides_the_editor_which_overrides_the_defaults(path: Path) -> None:
    result = loaded(
        path, editor={"model": "d", "proxy": "http://proxy:3128", "timeouts": {"idle": 5, "total": 9}}
    )
    assert result.settings.model == "of/the-file"
    assert (result.settings.proxy, result.origin("proxy")) == ("http://proxy:3128", "editor")
    assert (result.settings.timeouts.idle, result.origin("timeouts.idle")) == (
        60.0,
        f"the file {path}, line 5",
    )
    assert (result.settings.timeouts.total, result.origin("timeouts.total")) == (9.0, "editor")
    assert (result.settings.timeouts.connect, result.origin("timeouts.connect")) == (15.0, "default")


def test_tables_are_merged_and_lists_are_replaced(path: Path) -> None:
    options = {"gateway": {"caching": "auto"}, "openai": {"store": False}}
    editor = {"models": {"anthropic/*": {"provider_options": options}}, "deny": ["a", "b"]}
    result = loaded(path, editor=editor).settings
    assert result.models["anthropic/*"].provider_options == {
        "gateway": {"caching": "auto", "order": ["bedrock"]},
        "openai": {"store": False},
    }
    assert result.deny == ("*-preview",)


def test_defaults_are_used_without_a_file(tmp_path: Path) -> None:
    assert load_settings(environ={"XDG_CONFIG_HOME": str(tmp_path)}).settings.context_management
    with pytest.raises(RequestError, match=r"Settings file .* not found"):
        load_settings(environ={"TOLLBRIDGE_CONFIG": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("text", "setting", "words", "line"),
    [
        ("\nmodle = 'x'", "modle", 'Did you mean "model"?', 2),
        ("[timeouts]\n\nidle = 'long'", "timeouts.idle", "expected a number, got a string", 3),
        ("[timeouts]\nidle = -1", "timeouts.idle", "must be a number ≥ 0", 2),
        ("[timeouts]\nidle = nan", "timeouts.idle", "must be a number ≥ 0", 2),
        ("[timeouts]\ntotal = inf", "timeouts.total", "must be a number ≥ 0", 2),
        ("allow = 'x'", "allow", "expected a list, got a string", 1),
        (
            "[models]\n\n'a/b.c' = { context_window = 0 }",
            'models."a/b.c".context_window',
            "greater than 0",
            3,
        ),
        (
            "[models.a]\nparameters = { temperature = 'hot' }",
            "models.a.parameters.temperature",
            "expected a number, got a string",
            2,
        ),
        ("[models.a.parameters]\nmodel = 'x'", "models.a.parameters.model", "the editor controls it", 2),
        ("proxy = 'localhost:3128'", "proxy", "Expected something like http://proxy.example:3128", 1),
        ("proxy = 'socks5://localhost:1080'", "proxy", "SOCKS proxies are not supported", 1),
        ("[accounts.a]\nbase_url = 'x'", "accounts.a.base_url", "not an http or https URL", 2),
        (
            "[accounts.a]\nbackend = 'x'",
            "accounts.a.backend",
            'invalid value "x". Valid values: openresponses, ai-sdk',
            2,
        ),
        ("[accounts.a]\nkee = 'x'", "accounts.a.kee", 'Did you mean "key"?', 2),
        ("accounts.a.key = 'tk-secret'", "accounts.a.key", "not the key itself", 1),
        ('[models."a/b.c"]\ncontext_window = 0', 'models."a/b.c".context_window', "greater than 0", 2),
        (
            '[models."a/*".provider_options]\ngateway = 1',
            'models."a/*".provider_options.gateway',
            "JSON object",
            2,
        ),
        ("[models.a.parameters]\nx = 1979-05-27", "models.a.parameters", "date cannot be sent as JSON", 1),
        (
            "[models.a.provider_options.google]\nx = [nan]",
            "models.a.provider_options.google",
            "NaN and Infinity are not valid JSON",
            1,
        ),
    ],
)
def test_an_invalid_setting_is_reported_with_its_name_file_and_line(
    tmp_path: Path, text: str, setting: str, words: str, line: int
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        loaded(path)
    assert caught.value.message.startswith(setting)
    assert words in caught.value.message
    assert f"{path}, line {line})" in caught.value.message
    assert "tk-secret" not in caught.value.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"model = ", "is not valid TOML: Invalid value \\(at end of document"),
        (b"model = '\xff'", "is not UTF-8 text \\(byte 9\\)"),
        (b"#" * (SIZE_LIMIT + 1), "is larger than 64 KiB"),
        (b"a=" + b"[" * 50_000, "nested too deeply|not valid TOML"),
    ],
)
def test_an_unreadable_file_is_reported(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    with pytest.raises(RequestError, match=words):
        loaded(path)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TOLLBRIDGE_ALLOW_HTTP", "perhaps"),
        ("TOLLBRIDGE_TIMEOUT_IDLE", "soon"),
        ("TOLLBRIDGE_TIMEOUT_TOTAL", "-3"),
        ("TOLLBRIDGE_BACKEND", "soap"),
        ("TOLLBRIDGE_BASE_URL", "nowhere"),
    ],
)
def test_an_invalid_environment_variable_is_named(path: Path, variable: str, value: str) -> None:
    with pytest.raises(RequestError, match=variable):
        load_settings(environ={"TOLLBRIDGE_CONFIG": str(path), variable: value})


def test_an_empty_variable_is_ignored() -> None:
    assert load_settings(environ={"TOLLBRIDGE_CONFIG": ""}).settings.account is None


@pytest.mark.parametrize(
    ("record", "folder"), [("", None), ("~/turns", Path.home() / "turns"), ("/tmp/turns", Path("/tmp/turns"))]
)
def test_the_recording_folder_may_start_with_a_tilde_or_be_empty(
    path: Path, record: str, folder: Path | None
) -> None:
    path.write_text(f'record = "{record}"')
    assert loaded(path).settings.record_folder == folder


@pytest.mark.parametrize("record", ["~nobody-of-this-name/turns", "a\\u0000b"])
def test_an_invalid_recording_folder_is_reported_with_its_line(path: Path, record: str) -> None:
    path.write_text(f'model = "m"\nrecord = "{record}"')
    with pytest.raises(SettingsError, match=r"^record: .*\(.*, line 2\)$") as caught:
        loaded(path)
    assert caught.value.setting == "record"


def test_lists_numbers_and_booleans_are_read_from_the_environment(path: Path) -> None:
    result = loaded(
        path, TOLLBRIDGE_DENY="a/*, b", TOLLBRIDGE_ALLOW_HTTP="on", TOLLBRIDGE_TIMEOUT_TOTAL="7.5"
    ).settings
    assert (result.deny, result.allow_http, result.timeouts.total) == (("a/*", "b"), True, 7.5)


@pytest.mark.parametrize("setting", ["base_url", "accounts.work.base_url"])
def test_a_password_in_a_gateway_url_is_rejected_and_not_shown(path: Path, setting: str) -> None:
    table, _, name = setting.rpartition(".")
    path.write_text(f'{f"[{table}]" if table else ""}\n{name} = "https://me:hush-hush@host.example/v1"\n')
    with pytest.raises(SettingsError, match="must not contain a user name or a password") as caught:
        loaded(path)
    assert caught.value.setting == setting
    assert "line 2" in caught.value.message
    assert "hush" not in caught.value.message


def test_the_only_account_is_used(path: Path) -> None:
    account = resolve_account(loaded(path))
    assert (account.name, account.base_url, account.backend) == ("work", "https://work.example/v1", "ai-sdk")


def test_a_base_url_from_a_layer_of_higher_priority_replaces_the_account(path: Path) -> None:
    """The account's key must not go to another host."""
    account = resolve_account(loaded(path, {"base_url": "http://127.0.0.1:1/v1/"}))
    assert (account.name, account.base_url, account.key) == ("default", "http://127.0.0.1:1/v1", "auto")
    account = resolve_account(loaded(path, {"account": "work"}, TOLLBRIDGE_BASE_URL="http://127.0.0.1:1/v1"))
    assert account.base_url == "https://work.example/v1"


def test_a_base_url_and_an_account_from_one_layer_conflict(path: Path) -> None:
    with pytest.raises(RequestError, match="option --base-url and option --account conflict"):
        resolve_account(loaded(path, {"base_url": "http://127.0.0.1:1/v1", "account": "work"}))


def test_a_backend_from_the_environment_overrides_that_of_the_account(path: Path) -> None:
    assert resolve_account(loaded(path, TOLLBRIDGE_BACKEND="openresponses")).backend == "openresponses"
    assert resolve_account(loaded(path, editor={"backend": "openresponses"})).backend == "ai-sdk"


def test_an_unknown_account_is_reported_with_the_configured_ones(path: Path) -> None:
    with pytest.raises(RequestError, match=r'Account "wrok" not found in .*Configured accounts: work'):
        resolve_account(loaded(path, {"account": "wrok"}))
    path.write_text(FILE + "[accounts.home]\n")
    with pytest.raises(RequestError, match="Several accounts are configured \\(work, home\\)"):
        resolve_account(loaded(path))


@pytest.mark.io
def test_reading_the_settings_does_not_import_the_editor_of_toml(tmp_path: Path) -> None:
    """tomlkit takes as long to import as everything else: see docs/decisions/tomlkit.md."""
    path = tmp_path / "config.toml"
    path.write_text('model = "a/b"\n[timeouts]\nidle = 3\n')
    program = (
        "import sys; from tollbridge.config.loading import load_settings; "
        f"load_settings(environ={{'TOLLBRIDGE_CONFIG': {str(path)!r}}}); "
        "print('tomlkit' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_a_file_is_edited_up_to_its_size_limit(path: Path) -> None:
    line = 'model = "a"\n'
    path.write_text(line + "#" * (SIZE_LIMIT - len(line) - 1) + "\n")
    file = read_file(path)
    file.with_value("model", '"b"').write()
    assert path.read_text().startswith('model = "b"\n#')
    with pytest.raises(SettingsUnusable, match=r"model cannot be changed in .* larger than 64 KiB"):
        file.with_value("model", '"longer"')
    assert len(path.read_bytes()) == SIZE_LIMIT
