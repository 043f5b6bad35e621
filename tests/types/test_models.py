"""Limits, capabilities and prices of models."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.types.models import DEFAULT_EFFORTS, DEFAULT_WINDOW, OUTPUT_RESERVE, Limits, Model, Prices


@pytest.mark.parametrize("largest_output", [64_000, 128_000, 200_000, None])
def test_a_prompt_can_use_the_window_except_a_reserve_for_the_answer(largest_output: int | None) -> None:
    """Not the window less the largest output, which is a third of it for Claude."""
    model = Model(id="m", context_window=200_000, max_output_tokens=largest_output)
    assert model.limits == Limits(window=200_000, input=200_000 - OUTPUT_RESERVE, output=OUTPUT_RESERVE)


def test_no_more_is_reserved_than_the_model_can_answer() -> None:
    limits = Model(id="m", context_window=200_000, max_output_tokens=4_096).limits
    assert (limits.input, limits.output) == (195_904, 4_096)


def test_of_a_small_window_a_quarter_is_reserved() -> None:
    assert Model(id="m", context_window=2048).limits == Limits(2048, 1536, 512)
    assert Model(id="m", context_window=2048, output_reserve=48).limits == Limits(2048, 1536, 512)
    assert Model(id="m").limits == Limits(DEFAULT_WINDOW, DEFAULT_WINDOW * 3 // 4, DEFAULT_WINDOW // 4)
    assert Model(id="m", context_window=4_096, max_output_tokens=4_096).limits.output == 1024


def test_an_output_limit_of_the_user_is_reserved_up_to_half_of_the_window() -> None:
    model = Model(id="m", context_window=200_000, max_output_tokens=64_000, output_reserve=32_000)
    assert (model.limits.input, model.limits.output) == (168_000, 32_000)
    greedy = Model(id="m", context_window=200_000, output_reserve=500_000)
    assert (greedy.limits.input, greedy.limits.output) == (100_000, 100_000)


def test_a_context_size_of_the_user_limits_the_prompt_and_not_the_window() -> None:
    chosen = Model(id="m", context_window=200_000, context_size=100_000)
    assert (chosen.limits.window, chosen.limits.input) == (200_000, 100_000)
    assert Model(id="m", context_window=64_000, context_size=100_000).limits.input == 55_808


@pytest.mark.parametrize(
    ("window", "sizes"),
    [
        (32_000, ()),
        (128_000, (64_000, 119_808)),
        (200_000, (64_000, 128_000, 191_808)),
        (1_000_000, (128_000, 200_000, 400_000, 991_808)),
    ],
)
def test_smaller_context_sizes_can_be_chosen(window: int, sizes: tuple[int, ...]) -> None:
    assert Model(id="m", context_window=window).context_sizes == sizes


@given(
    st.integers(1, 10**7),
    st.integers(1, 10**7) | st.none(),
    st.integers(1, 10**7) | st.none(),
    st.integers(1, 10**7) | st.none(),
)
def test_input_and_output_fill_the_window(
    window: int, output: int | None, reserve: int | None, size: int | None
) -> None:
    model = Model(id="m", context_window=window, max_output_tokens=output, output_reserve=reserve)
    limits = model.limits
    assert limits.input >= 1
    assert limits.output >= 1
    assert limits.input + limits.output == max(window, 2)
    chosen = msgspec.structs.replace(model, context_size=size).limits
    assert 1 <= chosen.input <= limits.input
    assert chosen.output == limits.output


def test_without_reported_capabilities_tools_are_assumed_and_images_are_not() -> None:
    can = Model(id="m").capabilities
    assert (can.tools, can.images, can.files, can.reasoning) == (True, False, True, False)


def test_reported_capabilities_are_used() -> None:
    can = Model(id="m", tags=frozenset({"vision", "reasoning"})).capabilities
    assert (can.tools, can.images, can.files, can.reasoning) == (False, True, False, True)


@pytest.mark.parametrize(
    ("model", "efforts"),
    [
        (Model(id="m"), ()),
        (Model(id="m", tags=frozenset({"reasoning"})), DEFAULT_EFFORTS),
        (Model(id="m", reasoning_efforts=("none", "xhigh")), ("none", "xhigh")),
    ],
)
def test_efforts_are_offered_for_models_that_reason(model: Model, efforts: tuple[str, ...]) -> None:
    assert model.efforts == efforts


def test_the_type_decides_whether_a_model_is_a_chat_model() -> None:
    assert Model(id="m").is_chat_model
    assert Model(id="m", type="language").is_chat_model
    assert not Model(id="m", type="embedding").is_chat_model


def test_capabilities_set_by_the_user_override_the_gateway() -> None:
    model = Model(id="m", tags=frozenset({"vision"}), overrides={"tools": True, "images": False})
    can = model.capabilities
    assert (can.tools, can.images, can.files) == (True, False, False)
    assert not Model(id="m", overrides={"tools": False}).capabilities.tools


@pytest.mark.parametrize(
    ("input", "output", "category"),
    [
        ("0", "0", "low"),
        ("0.00000025", "0.000002", "low"),
        ("0.000001", "0.000005", "medium"),
        ("0.000003", "0.000015", "medium"),
        ("0.000005", "0.000025", "high"),
    ],
)
def test_prices_fall_into_categories(input: str, output: str, category: str) -> None:
    assert Prices(Decimal(input), Decimal(output)).category == category


def test_a_model_with_only_one_known_price_has_no_category() -> None:
    assert Prices(Decimal(1)).category is None
    assert Prices(output=Decimal(1)).category is None
