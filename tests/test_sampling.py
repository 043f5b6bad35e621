"""The sample of `make quick` and `make check` is fixed, and covers every version and kind of recording."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sampling import EXAMPLES, limit_examples, sample

TESTS = Path(__file__).parent
RECORDINGS = sorted(
    f"{path.parent.name}/{path.name}"
    for path in (TESTS / "recordings" / "aisdk").glob("*/*")
    if path.name.endswith((".full.jsonl", ".ui.sse", ".ui.ds.txt"))
)


class Item:
    """The part of a `pytest.Item` that sampling uses."""

    def __init__(
        self, file: str, name: str, *markers: str, is_async: bool = False, **parameters: str
    ) -> None:
        self.callspec = SimpleNamespace(params=parameters)
        self.path = TESTS / file
        self.nodeid = f"tests/{file}::{name}"
        self._markers = {*markers, "asyncio"} if is_async else {*markers}

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self._markers else None


def names(items: list[Any]) -> list[str]:
    chosen = sample(items)
    return [item.nodeid.partition("::")[2] for item in items if item in chosen]


def recorded(function: str) -> list[Any]:
    return [Item("protocols/ai_sdk/test_recordings.py", f"{function}[{name}]") for name in RECORDINGS]


def test_every_version_and_kind_of_recording_is_in_the_sample_of_each_function() -> None:
    kinds = {_version_and_kind(name) for name in RECORDINGS}
    for position in range(8):
        items = [item for number in range(position + 1) for item in recorded(f"test_{number}")]
        sampled = [name for name in names(items) if name.startswith(f"test_{position}[")]
        assert len(sampled) < len(RECORDINGS) / 6
        assert {_version_and_kind(name.partition("[")[2].rstrip("]")) for name in sampled} == kinds


def test_seven_functions_together_use_every_recording() -> None:
    items = [item for number in range(7) for item in recorded(f"test_{number}")]
    assert sorted(name.partition("[")[2].rstrip("]") for name in names(items)) == RECORDINGS


def test_every_eighth_test_that_starts_a_process_is_in_the_sample() -> None:
    items: list[Any] = [Item("cli/test_ask.py", f"test_{number}", is_async=True) for number in range(17)]
    assert names(items) == ["test_0", "test_8", "test_16"]


def test_every_scenario_is_in_the_sample_with_one_backend_in_turn() -> None:
    items: list[Any] = [
        Item("test_faults.py", f"test[{name}{backend}]", is_async=True, scenario=str(name), backend=backend)
        for name in range(20)
        for backend in ("abcd" if name != 1 else "a")
    ]
    assert names(items) == [f"test[{name}{backend}]" for name, backend in enumerate("aacd" + "abcd" * 4)]


def test_every_seventh_case_of_a_series_is_in_the_sample() -> None:
    items: list[Any] = [Item("test_linear_time.py", f"test_a[{number}]", "series") for number in range(60)]
    items += [Item("test_linear_time.py", f"test_b[{number}]", "series") for number in range(3)]
    assert names(items) == [*(f"test_a[{number}]" for number in range(0, 60, 7)), "test_b[0]"]


def test_short_series_and_tests_without_a_process_are_all_in_the_sample() -> None:
    items: list[Any] = [Item("protocols/test_sse.py", f"test_frames[{number}]") for number in range(100)]
    items += [Item("cli/test_output.py", "test_a"), Item("cli/test_output.py", "test_b")]
    assert len(names(items)) == 102


def test_a_property_test_has_at_most_so_many_examples() -> None:
    calls = 0

    @settings(max_examples=2_000, database=None)
    @given(st.integers())
    def check(_number: int) -> None:
        nonlocal calls
        calls += 1

    limit_examples(cast("Any", SimpleNamespace(obj=check)))
    check()
    assert 10 < calls <= EXAMPLES


def _version_and_kind(name: str) -> tuple[str, str]:
    """Return `("6.0.326", "ui.sse")` for `6.0.326/text.ui.sse`."""
    version, _, file = name.partition("/")
    return version, file.partition(".")[2]
