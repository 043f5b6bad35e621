"""The sample of the tests that `make quick` and `make check` run, chosen with `pytest --sample`.

Five kinds of test take most of the time, and each has a rule:

- Series of recordings, with some 290 cases per function: every seventh case. Each function starts at another
  case, so that together the functions of a file use every recording.
- Series of all scenarios and backends, with some 480 cases per function: every scenario with one backend,
  the first with the first, the second with the second and so on.
- Functions with the marker `series`, whose cases test the same code with other inputs and are slow: every
  seventh case, so at least the first.
- Tests that start at least one process each: every eighth test of a file.
- Property tests: at most 20 examples instead of up to 2,000.

The choice depends only on the order of the tests in their files. `make test` runs everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

import hypothesis
import pytest

from tests.folders import is_in

LONG_SERIES = 180
SCENARIO_SERIES = 30
SERIES_STEP = 7
PROCESS_STEP = 8
EXAMPLES = 20

# Series of recordings and of messages. Of the scenarios, all are used: each is another behaviour.
RECORDINGS = ("protocols/ai_sdk", "cli", "interop/aisdk")
# Folders whose async tests start the command line, the stdio server or pip; all of `interop` starts Node.
PROCESSES = ("cli", "frontends/stdio", "interop", "local")


def sample(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that belong to the sample."""
    chosen: set[pytest.Item] = set()
    for path, group in groupby(items, lambda item: item.path):
        tests = list(group)
        cases = Counter(_function_name(item) for item in tests)
        starts = {_function_name(item): 0 for item in tests if item.get_closest_marker("series")}
        if is_in(path, RECORDINGS):
            long_series = (name for name, count in cases.items() if count >= LONG_SERIES)
            starts |= {name: number % SERIES_STEP for number, name in enumerate(long_series)}
        scenarios: dict[str, dict[str, list[pytest.Item]]] = {}
        seen: Counter[str] = Counter()
        for item in tests:
            name = _function_name(item)
            if name in starts:
                keep = seen[name] % SERIES_STEP == starts[name]
                seen[name] += 1
            elif _starts_process(item):
                keep = seen["a process"] % PROCESS_STEP == 0
                seen["a process"] += 1
            elif cases[name] >= SCENARIO_SERIES and (scenario := _scenario(item)):
                scenarios.setdefault(name, {}).setdefault(scenario, []).append(item)
                keep = False
            else:
                keep = True
            if keep:
                chosen.add(item)
        for series in scenarios.values():
            chosen.update(backends[n % len(backends)] for n, backends in enumerate(series.values()))
    return chosen


def limit_examples(item: pytest.Item) -> None:
    """Give a property test at most `EXAMPLES` examples, also if its own settings ask for more."""
    function = getattr(item, "obj", None)
    if getattr(function, "is_hypothesis_test", False):
        # Hypothesis has no public way to change the settings of a decorated test.
        settings = function._hypothesis_internal_use_settings  # type: ignore[union-attr]
        if settings.max_examples > EXAMPLES:
            function._hypothesis_internal_use_settings = hypothesis.settings(  # type: ignore[union-attr]
                settings, max_examples=EXAMPLES
            )


def _scenario(item: pytest.Item) -> str | None:
    """Return the scenario of a test that is repeated for every backend."""
    parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    return str(parameters) if parameters.pop("backend", None) else None


def _starts_process(item: pytest.Item) -> bool:
    is_async = item.get_closest_marker("asyncio") is not None
    return is_in(item.path, PROCESSES) and (is_async or is_in(item.path, ("interop",)))


def _function_name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
