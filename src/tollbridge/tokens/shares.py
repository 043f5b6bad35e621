"""The parts of a sum, for showing: where the tokens of a prompt come from."""

from __future__ import annotations

import msgspec

from tollbridge.tokens.learner import Extra, Weights
from tollbridge.tokens.pricing import Sum

# What a person calls each feature.
_LABELS: dict[Extra, str] = {
    Extra.TOOLS_TEXT: "tools",
    Extra.TOOLS: "tools",
    Extra.TOOLS_PRESENT: "tools",
    Extra.MESSAGES: "around messages",
    Extra.BASE: "around messages",
    Extra.MEDIA: "images and files",
    Extra.REASONING_LOOP: "reasoning",
    Extra.REASONING_PAST: "reasoning",
    Extra.CALLS: "around tool calls",
    Extra.ANSWERS: "around messages",
}


class Share(msgspec.Struct, frozen=True):
    label: str
    tokens: int


def shares(best: Sum, weights: Weights) -> tuple[Share, ...]:
    """The parts of what is told, largest first.

    What rounding leaves over goes to the largest; so does an overhead learned to be less than nothing.
    """
    amounts: dict[str, float] = {
        "counted before": float(best.anchor.tokens),
        "known before": best.tally.known,
        "text": best.text,
        "margin": best.margin,
    }
    for feature, amount in best.tally.extras():
        label = _LABELS[Extra(feature)]
        amounts[label] = amounts.get(label, 0.0) + amount * weights.extra.weights[feature]
    found = sorted(
        (Share(label, round(amount)) for label, amount in amounts.items() if round(amount) > 0),
        key=lambda share: -share.tokens,
    )
    if found:
        left = best.shown - sum(share.tokens for share in found)
        found[0] = Share(found[0].label, found[0].tokens + left)
    return tuple(found)
