"""The texts of the status bar item."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.status_bar import ShownAnswer, StatusBar

NOTHING = wire.Spending(0)


def make_result(input_tokens: int, output_tokens: int, **fields: Any) -> wire.ChatResult:
    usage = wire.TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    known = {"usage": usage, "first_seconds": 0.412, "seconds": 3.2, "counts_revision": 1}
    return wire.ChatResult(**{**known, **fields})


def show(
    result: wire.ChatResult | None,
    *,
    warning: str | None = None,
    conversation: wire.Spending | None = None,
    today: wire.Spending = NOTHING,
    budgets: tuple[wire.BudgetInfo, ...] = (),
) -> wire.Status:
    bar = StatusBar()
    bar.last = ShownAnswer("Demo", "c", result, 128_000, warning)
    return bar.format(today, conversation, budgets)


def test_the_item_has_the_model_the_context_and_the_cost_of_the_conversation() -> None:
    status = show(make_result(22_984, 56), conversation=wire.Spending(5, Decimal("0.42")))
    assert status.text == "Demo 18 % · $0.42"
    assert status.label == "Tollbridge: Demo, 18 % of the context window, $0.42 in this conversation"
    assert not status.warning
    assert "| context | 23,040 of 128,000 (18.0 %) |" in status.tooltip
    assert "| time | first token 0.41 s, total 3.20 s |" in status.tooltip
    assert "| this conversation | $0.42 (5 requests) |" in status.tooltip


def test_the_tooltip_has_the_costs_of_today_and_the_budgets() -> None:
    budget = wire.BudgetInfo("daily budget", Decimal(5), Decimal("2.1"))
    status = show(make_result(10, 1), today=wire.Spending(1, Decimal("2.1"), partial=True), budgets=(budget,))
    assert "| today | ≥ $2.10 (1 request) |" in status.tooltip
    assert "| daily budget | $2.10 of $5.00 |" in status.tooltip


def test_requests_without_a_conversation_count_as_background_and_do_not_change_the_item() -> None:
    bar = StatusBar()
    bar.last = ShownAnswer("Demo", "c", make_result(22_984, 56), 128_000)
    before = bar.format(NOTHING, None, ())
    bar.add_background(wire.TurnCost(Decimal("0.001"), "billed"))
    bar.add_background(None)
    after = bar.format(NOTHING, None, ())
    assert (after.text, after.label) == (before.text, before.label)
    assert "background" not in before.tooltip
    assert "| background | $0.001 (2 requests) |" in after.tooltip


def test_an_unknown_cost_is_not_shown_as_zero() -> None:
    status = show(make_result(1_280, 0), conversation=wire.Spending(2), today=wire.Spending(3))
    assert status.text == "Demo 1 %"
    assert "| today | 3 requests |" in status.tooltip


def test_a_little_of_the_window_is_not_shown_as_nothing() -> None:
    assert show(make_result(10, 1)).text == "Demo <1 %"


def test_the_context_is_the_content_of_the_window_and_not_the_sum_of_several_steps() -> None:
    context = wire.TokenUsage(input_tokens=9_000, output_tokens=100)
    status = show(make_result(70_000, 300, context=context))
    assert status.text == "Demo 7 %"
    assert "| context | 9,100 of 128,000 (7.1 %) |" in status.tooltip
    assert "| input | 70,000 |" in status.tooltip


def test_warnings_and_rejected_prompts_are_shown() -> None:
    status = show(make_result(10, 1), warning="The prompt is close to the limit.")
    assert status.warning
    assert "**The prompt is close to the limit.**" in status.tooltip
    rejected = show(None, warning="The prompt is too long.")
    assert (rejected.text, rejected.warning) == ("Demo", True)
    assert "**The prompt is too long.**" in rejected.tooltip
    assert "no usage" not in rejected.tooltip


@pytest.mark.parametrize("missed", [True, False])
def test_the_tooltip_explains_a_prompt_that_was_not_read_from_the_cache(missed: bool) -> None:
    cache = wire.CacheInfo(missed=missed, kind="tools", text="The tool x was added.")
    assert ("The tool x" in show(make_result(10, 1, cache=cache)).tooltip) == missed


def test_before_the_first_answer_and_without_usage_there_are_no_numbers() -> None:
    status = StatusBar().format(NOTHING, None, ())
    assert (status.text, status.label) == ("Tollbridge", "Tollbridge")
    assert "No answer yet" in status.tooltip
    unreported = show(make_result(0, 0, usage=None))
    assert unreported.text == "Demo"
    assert "reported no usage" in unreported.tooltip


def test_the_label_has_no_markdown() -> None:
    label = show(make_result(10, 1), conversation=wire.Spending(1, Decimal(1))).label
    assert not set(label) & set("|*\n")
