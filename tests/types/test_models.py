"""Limits, capabilities and prices of models."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.types.models import DEFAULT_EFFORTS, DEFAULT_OUTPUT, DEFAULT_WINDOW, Limits, Model, Prices


def test_the_output_is_reserved_inside_the_window() -> None:
    model = Model(id="m", context_window=200_000, max_output_tokens=64_000)
    assert model.limits == Limits(window=200_000, input=136_000, output=64_000)


def test_a_model_without_reported_limits_gets_the_defaults() -> None:
    expected = Limits(window=DEFAULT_WINDOW, input=DEFAULT_WINDOW - DEFAULT_OUTPUT, output=DEFAULT_OUTPUT)
    assert Model(id="m").limits == expected


def test_half_of_the_window_is_reserved_for_the_input() -> None:
    assert Model(id="m", context_window=128_000, max_output_tokens=128_000).limits.input == 64_000


@given(st.integers(1, 10**7), st.integers(1, 10**7) | st.none())
def test_input_and_output_fill_the_window(window: int, output: int | None) -> None:
    limits = Model(id="m", context_window=window, max_output_tokens=output).limits
    assert limits.input >= 1
    assert limits.output >= 1
    assert limits.input + limits.output == max(window, 2)


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
