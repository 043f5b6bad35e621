"""Run the tests of `extension/test/host` inside VS Code's extension host, in both installations."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest
from tests.vscode.browser import (
    ARTIFACTS,
    list_descendants,
    open_browser,
    run_in_extension_host,
    wait_for_end,
)
from workshop.code_server import Tree
from workshop.workbench import Workbench

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.media import draw_png

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "tests" / "recordings" / "counts" / "agent-turn.json"
ENGINE = [sys.executable, "-m", "tollbridge.sidecar"]
# 40 tokens per second.
PACE = 0.025


@pytest.mark.parametrize("tree", ["stock", "strict"])
async def test_the_host_tests_pass_and_no_process_remains(
    tree: Tree, extension_folder: Path, tmp_path: Path
) -> None:
    results_file = tmp_path / "results.json"
    async with Gateway(settings=FaultSettings(pace=PACE)) as gateway:
        workbench = Workbench(
            tmp_path / "vscode",
            tree=tree,
            accounts={"Test": gateway.url},
            settings={"tollbridge.command": ENGINE},
            environment={
                "PYTHONPATH": str(ROOT / "src"),
                "TOLLBRIDGE_TEST_RESULTS": str(results_file),
                "TOLLBRIDGE_TEST_PNG": base64.b64encode(draw_png()).decode(),
                "TOLLBRIDGE_TEST_COUNTS": str(COUNTS),
            },
            allow_tests=True,
        )
        async with workbench, open_browser(workbench) as page:
            tests = extension_folder / "dist/host-tests.cjs"
            code = await run_in_extension_host(workbench, page, extension_folder, tests, timeout=240)
            descendants = list_descendants(workbench.pid)
        await wait_for_end(descendants, timeout=15)
    results = json.loads(results_file.read_text())
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / f"host-{tree}.json").write_text(json.dumps(results, indent=1))
    failures = {result["name"]: result["error"] for result in results if "error" in result}
    assert not failures, "\n\n".join(f"{name}\n{error}" for name, error in failures.items())
    assert code == 0
    assert ENGINE in descendants.values(), "the engine was not running"
    _check_requests(gateway)


def _check_requests(gateway: Gateway) -> None:
    bodies = json.dumps([request.body for request in gateway.requests if isinstance(request.body, dict)])
    assert "data:image/png;base64," in bodies
    assert "data:image/jpeg;base64," not in bodies
    assert '"type": "reasoning"' in bodies
