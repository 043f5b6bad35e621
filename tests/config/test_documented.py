"""`docs/settings.md` agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

from tollbridge.config.environment import VARIABLES
from tollbridge.config.loading import load_settings
from tollbridge.config.schema import ModelSettings, Settings
from tollbridge.recorder.files import LIMITS

TEXT = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


def test_the_documented_file_is_valid_and_shows_every_setting(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "config.toml"
    path.write_text(example)
    loaded = load_settings(environ={"TOLLBRIDGE_CONFIG": str(path)})
    shown = {name.partition(".")[0] for name in loaded.origins}
    assert set(Settings.__struct_fields__) - shown == {"base_url", "backend", "headers", "record_redact"}


def test_the_documented_file_shows_every_setting_of_a_model(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "config.toml"
    path.write_text(example)
    models = load_settings(environ={"TOLLBRIDGE_CONFIG": str(path)}).settings.models.values()
    unset = ModelSettings()
    for field in ModelSettings.__struct_fields__:
        assert any(getattr(model, field) != getattr(unset, field) for model in models), field


def test_the_documented_variables_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(TOLLBRIDGE_\w+)` \| `([\w.]+)` \|$", TEXT, re.MULTILINE))
    assert rows == {variable: setting for variable, (setting, _) in VARIABLES.items()}


def test_the_documented_limits_are_those_of_the_code() -> None:
    size = f"{LIMITS.recording_bytes >> 20} MiB"
    assert f"at most {size} of requests and {size} of responses" in TEXT
    assert f"{LIMITS.folder_files} recordings and {LIMITS.folder_bytes >> 20} MiB" in TEXT
