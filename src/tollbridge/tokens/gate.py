"""Which reports of usage to believe. Gateways report zeros, parts, sums of several steps, and nonsense."""

from __future__ import annotations

from enum import Enum

from tollbridge.core.usage import Usage

# A report is believed when it is within these bounds, as shares of the estimate.
USUAL = (0.6, 1.6)
# The same while a model is new, when the estimate itself may be far off.
FIRST = (0.35, 3.0)
NEW = 5
# Where the report without its cached tokens is outside of these, and with them inside, they were left out.
CLOSE = (0.85, 1.2)
# After so many refused reports in a row that agree with each other, it is the estimate that is wrong.
AGREEING = 3
AGREEMENT = 0.15


def prompt_tokens(usage: Usage, expected: float) -> int | None:
    """The size of the prompt a usage speaks of; `None` where it does not say.

    Cached tokens are part of the input, but some providers leave them out of it.
    """
    tokens, cached = usage.input_tokens, usage.cached_tokens
    if not tokens or tokens < 0:
        return None
    if not cached or cached < 0:
        return tokens
    if cached > tokens:
        return tokens + cached
    if not _within(tokens, expected, CLOSE) and _within(tokens + cached, expected, CLOSE):
        return tokens + cached
    return tokens


def _within(tokens: float, expected: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] * expected <= tokens <= bounds[1] * expected


class Verdict(Enum):
    BELIEVED = "believed"
    REFUSED = "refused"
    # Refused so often, and so alike, that what was learned must be wrong.
    NEW_TRUTH = "new truth"


class Gate:
    """Lets believable reports through, model by model."""

    def __init__(self) -> None:
        self._refused: dict[str, list[float]] = {}

    def believes(self, tokens: int, expected: float, seen: int) -> bool:
        """Whether a number is near enough to what was expected, after `seen` reports of the model."""
        return _within(tokens, expected, FIRST if seen < NEW else USUAL)

    def judge(self, model: str, tokens: int, expected: float, seen: int) -> Verdict:
        """Whether to believe `tokens`, after `seen` reports of this model were believed."""
        refused = self._refused.setdefault(model, [])
        if self.believes(tokens, expected, seen):
            refused.clear()
            return Verdict.BELIEVED
        refused.append(tokens / max(expected, 1.0))
        last = refused[-AGREEING:]
        if len(last) == AGREEING and max(last) <= min(last) * (1 + AGREEMENT):
            refused.clear()
            return Verdict.NEW_TRUTH
        del refused[:-AGREEING]
        return Verdict.REFUSED
