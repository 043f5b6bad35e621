"""Every example runs without a key and without warnings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.cli_process import environment

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# Part of the output of each, so that an example that prints nothing fails.
OUTPUTS = {
    "adapt_a_stream.py": "ToolCallPart(call_id='call_1abc', name='get_weather', input={'location': 'Paris'})",
    "faults_on_demand.py": "disconnect    disconnected    'You said",
    "sidecar_client.py": "You said “Say something, slowly.”.",
    "stream_an_answer.py": "stop: Usage(input_tokens=10, output_tokens=45, total_tokens=55",
    "use_tools.py": "The tool get_weather answered: “Sunny in Oslo, 21 °C.”.",
}


def test_every_example_is_run() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(OUTPUTS)


@pytest.mark.io
@pytest.mark.parametrize("name", OUTPUTS)
def test_an_example_works_with_any_settings(name: str, tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text("[budgets]\nday = 5\n")
    result = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        env=environment({"TOLLBRIDGE_CONFIG": str(settings), "TOLLBRIDGE_DATA_DIR": str(tmp_path)}),
        cwd=tmp_path,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert OUTPUTS[name] in result.stdout
