"""Thinking of Claude models: some think within a budget of tokens, others are given an effort."""

from __future__ import annotations

import re
from typing import Any

# Models before Claude 4.6 think within a budget; newer ones, and those of other providers, choose it.
_BUDGET_MODELS = re.compile(r"claude-(?:3|(?:opus|sonnet|haiku)-4(?!\d)(?![-.](?:[2-46-9]|\d\d)(?!\d)))")
BUDGETS = {"minimal": 1_024, "low": 4_096, "medium": 12_288, "high": 24_576}
_MIN_BUDGET = BUDGETS["minimal"]


def choose_thinking(model: str, effort: str, max_tokens: int) -> tuple[dict[str, Any] | None, str | None]:
    """Return `thinking` of a Messages request, and the effort for its `output_config`; `None` if not sent."""
    if effort == "none":
        return {"type": "disabled"}, None
    if not _BUDGET_MODELS.search(model):
        return {"type": "adaptive"}, "low" if effort == "minimal" else effort
    if max_tokens <= _MIN_BUDGET:
        return None, None
    budget = min(BUDGETS.get(effort, BUDGETS["high"]), max(_MIN_BUDGET, max_tokens // 2))
    return {"type": "enabled", "budget_tokens": budget}, None


def effort_for(budget: float) -> str:
    """Return the effort that a budget of thinking tokens corresponds to."""
    return next((name for name in ("low", "medium") if budget <= BUDGETS[name]), "high")
