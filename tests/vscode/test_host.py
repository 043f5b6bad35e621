"""The extension inside a real extension host, on both trees; the tests are `extension/test/host`."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

import pytest
from tests.vscode.window import ARTIFACTS, descendants, opened, run_inside, runs
from workshop.codeserver import Tree
from workshop.workbench import Workbench

from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.server import Gateway
from tollbridge.types.media import draw_png

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "tests" / "recordings" / "counts" / "agent-turn.json"
# 40 tokens a second.
PACE = 0.025


@pytest.mark.parametrize("tree", ["stock", "strict"])
async def test_everything_an_extension_can_ask(tree: Tree, built: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    async with Gateway(settings=FaultSettings(pace=PACE)) as gateway:
        workbench = Workbench(
            tmp_path / "vscode",
            tree=tree,
            accounts={"Test": gateway.url},
            settings={"tollbridge.command": [sys.executable, "-m", "tollbridge.sidecar"]},
            environment={
                "PYTHONPATH": str(ROOT / "src"),
                "TOLLBRIDGE_TEST_RESULTS": str(results),
                "TOLLBRIDGE_TEST_PNG": base64.b64encode(draw_png()).decode(),
                "TOLLBRIDGE_TEST_COUNTS": str(COUNTS),
            },
            driven=True,
        )
        async with workbench, opened(workbench) as page:
            code = await run_inside(workbench, page, built, built / "dist/host-tests.cjs", timeout=240)
            started = descendants(workbench.pid)
        await _all_gone(started)
    told = json.loads(results.read_text())
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / f"host-{tree}.json").write_text(json.dumps(told, indent=1))
    failed = {result["name"]: result["error"] for result in told if "error" in result}
    assert not failed, "\n\n".join(f"{name}\n{error}" for name, error in failed.items())
    assert code == 0
    assert any("tollbridge" in command for command in started.values()), "the engine was running"
    _check_what_arrived(gateway)


def _check_what_arrived(gateway: Gateway) -> None:
    bodies = [arrival.body for arrival in gateway.requests if isinstance(arrival.body, dict)]
    sent = json.dumps(bodies)
    assert "data:image/png;base64," in sent
    assert "data:image/jpeg;base64," not in sent
    assert '"type": "reasoning"' in sent


async def _all_gone(started: dict[int, str]) -> None:
    """No process outlives VS Code, the engine least of all."""
    async with asyncio.timeout(15):
        while any(map(runs, started)):  # noqa: ASYNC110 - of a process that is not ours there is no news
            await asyncio.sleep(0.1)
