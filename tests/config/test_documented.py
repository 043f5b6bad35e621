"""What `docs/settings.md` says is so."""

from __future__ import annotations

import re
from pathlib import Path

from tollbridge.config.loading import VARIABLES, load_settings
from tollbridge.config.schema import ModelSettings, Settings
from tollbridge.recorder.recorder import FILE_LIMIT, RECORDING_LIMIT, SIZE_LIMIT

TEXT = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


def test_the_documented_file_is_one_and_shows_every_setting(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "config.toml"
    path.write_text(example)
    loaded = load_settings(environ={"TOLLBRIDGE_CONFIG": str(path)})
    shown = {name.partition(".")[0] for name in loaded.origins}
    assert set(Settings.__struct_fields__) - shown == {"base_url", "backend", "record_redact"}


def test_the_documented_file_shows_everything_that_can_be_set_for_a_model(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "config.toml"
    path.write_text(example)
    models = load_settings(environ={"TOLLBRIDGE_CONFIG": str(path)}).settings.models.values()
    unset = ModelSettings()
    for field in ModelSettings.__struct_fields__:
        assert any(getattr(each, field) != getattr(unset, field) for each in models), field


def test_the_table_of_variables_is_that_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(TOLLBRIDGE_\w+)` \| `([\w.]+)` \|$", TEXT, re.MULTILINE))
    assert rows == {variable: setting for variable, (setting, _) in VARIABLES.items()}


def test_the_documented_limits_are_the_real_ones() -> None:
    assert f"keeps {RECORDING_LIMIT >> 20} MiB of requests and as much of answers at most" in TEXT
    assert f"{FILE_LIMIT} recordings and {SIZE_LIMIT >> 20} MiB" in TEXT
