"""What all tests share: the sandbox, the order in which they run, and the options that the Makefile uses.

The speeds of the Makefile are `make quick` (`--sample -m "pure and not slow"`), `make check`
(`--sample -m "not slow"`) and `make test` (no selection). Markers are documented in `pyproject.toml`.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from itertools import count

import hypothesis
import pytest

from tests import purity, sampling
from tests.folders import is_in
from tests.sandbox import DIRECTORY, ENVIRONMENT

os.environ.update(ENVIRONMENT)

# A busy machine makes any example slow, so examples have no deadline; pytest-timeout stops a test that hangs.
hypothesis.settings.register_profile("tollbridge", deadline=None)
hypothesis.settings.load_profile("tollbridge")

# A shell starts background jobs with SIGINT ignored, and their children inherit that; some tests send SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_data_directories = (f"{DIRECTORY}/data-{number}" for number in count(1))

# These tests install packages and take longest, so they start first. pytest-xdist gives the first eighth of
# the tests to the first worker, so that one worker runs all of them: one VS Code and one proxy at a time.
# They depend on timing, so a failed one is run once more, like the tests with the marker `timed`.
FIRST = ("vscode", "interop/litellm", "interop/servers")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample",
        action="store_true",
        help="run a fixed sample of the long test series (see tests/sampling.py)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage among the tests: they stay, and searching them takes 40 % of the collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(FIRST) if is_in(item.path, (folder,))), len(FIRST))

    items.sort(key=rank)
    for item in items:
        if is_in(item.path, FIRST):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("timed") or is_in(item.path, FIRST):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if purity.is_pure(item):
            item.add_marker(pytest.mark.pure)
    if config.getoption("--sample"):
        chosen = sampling.sample(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
        for item in items:
            sampling.limit_examples(item)


def pytest_runtest_setup() -> None:
    """Give each test its own data directory, so that no test depends on what an earlier one stored.

    Most tests store nothing, so the directory is created by the code that uses it.
    """
    ENVIRONMENT["TOLLBRIDGE_DATA_DIR"] = os.environ["TOLLBRIDGE_DATA_DIR"] = next(_data_directories)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Fail a test of pure code that opens a socket, starts a process or sleeps."""
    if not pyfuncitem.get_closest_marker("pure"):
        return (yield)
    purity.start_watching()
    try:
        result = yield
    finally:
        violations = purity.stop_watching()
    if violations:
        pytest.fail(
            f"This test {violations[0]}, which makes `make quick` slow: mark it with `@pytest.mark.io`."
        )
    return result
