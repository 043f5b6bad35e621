"""The status bar item of the editor: the model, the context window and the costs.

Its texts are made here and not in the extension, so that every editor can show the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec

from tollbridge.frontends.stdio import wire
from tollbridge.storage.budgets import format_dollars


class ShownAnswer(msgspec.Struct, frozen=True):
    """The last answer of a conversation. The window is in tokens, and `None` if it is not known."""

    model: str
    conversation: str
    result: wire.ChatResult | None = None
    window: int | None = None
    warning: str | None = None


class StatusBar:
    """The answers of one editor window: the last one that belongs to a conversation, and those that do not.

    Requests without a conversation are made in the background.
    """

    def __init__(self) -> None:
        self.last: ShownAnswer | None = None
        self._background = wire.Spending(0)

    def add_background(self, cost: wire.TurnCost | None) -> None:
        """Count a request that belongs to no conversation, such as one for a title."""
        total = self._background.cost
        if cost is not None:
            total = (total or Decimal()) + cost.charge
        self._background = wire.Spending(self._background.requests + 1, total)

    def format(
        self, today: wire.Spending, conversation: wire.Spending | None, budgets: Sequence[wire.BudgetInfo]
    ) -> wire.Status:
        """Return the item. The costs are those of the last answer's conversation."""
        last = self.last
        figures = [] if last is None else [last.model]
        details = []
        if last is not None and last.window and (tokens := _context_tokens(last)) is not None:
            share = tokens / last.window
            percent = "<1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"
            figures.append(percent)
            details.append(f"{percent} of the context window")
        text = " ".join(figures) or "Tollbridge"
        if conversation is not None and conversation.cost is not None:
            text += f" · {_format_cost(conversation)}"
            details.append(f"{_format_cost(conversation)} in this conversation")
        rows = [
            *([("this conversation", conversation)] if conversation and conversation.requests else []),
            ("today", today),
            *([("background", self._background)] if self._background.requests else []),
        ]
        costs = [(name, _describe(spending)) for name, spending in rows]
        costs += [
            (each.name, f"{format_dollars(each.spent)} of {format_dollars(each.limit)}") for each in budgets
        ]
        blocks = ["**Tollbridge**", *_describe_answer(last), _format_table("Cost", "", costs)]
        return wire.Status(
            text=text,
            label=", ".join(["Tollbridge" if last is None else f"Tollbridge: {last.model}", *details]),
            tooltip="\n\n".join([*blocks, "Click to show the usage page."]),
            warning=last is not None and last.warning is not None,
        )


def _context_tokens(answer: ShownAnswer) -> int | None:
    usage = (answer.result.context or answer.result.usage) if answer.result else None
    if usage is None:
        return None
    return usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _describe_answer(answer: ShownAnswer | None) -> list[str]:
    if answer is None:
        return ["No answer yet in this window."]
    blocks = [] if answer.warning is None else [f"**{answer.warning}**"]
    result = answer.result
    if result is None:
        return blocks
    if result.cache is not None and result.cache.missed:
        blocks.append(result.cache.text)
    usage, used = result.usage, _context_tokens(answer)
    if usage is None or used is None:
        return [*blocks, f"{answer.model}: the gateway reported no usage."]
    window = f" of {answer.window:,} ({100 * used / answer.window:.1f} %)" if answer.window else ""
    rows = [
        ("context", f"{used:,}{window}"),
        ("input", _format_count(usage.input_tokens)),
        ("cached", _format_count(usage.cached_tokens)),
        ("output", _format_count(usage.output_tokens)),
        ("reasoning", _format_count(usage.reasoning_tokens)),
    ]
    if result.cost is not None:
        rows.append(("cost", format_dollars(result.cost.charge)))
    if result.first_seconds is not None:
        rows.append(("time", f"first token {result.first_seconds:.2f} s, total {result.seconds:.2f} s"))
    return [*blocks, _format_table(answer.model, "last answer", rows)]


def _format_table(name: str, value: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [(name, value), (":--", ":--"), *rows]
    return "\n".join(f"| {left} | {right} |" for left, right in lines)


def _describe(spending: wire.Spending) -> str:
    requests = f"{spending.requests:,} request{'' if spending.requests == 1 else 's'}"
    return requests if spending.cost is None else f"{_format_cost(spending)} ({requests})"


def _format_cost(spending: wire.Spending) -> str:
    """Return a cost, and mark the sum of some requests if the cost of others is not known."""
    return f"{'≥ ' if spending.partial else ''}{format_dollars(spending.cost or Decimal())}"


def _format_count(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"
