"""The parts of a sum, for showing: where the tokens of a prompt come from."""

from __future__ import annotations

import msgspec

from tollbridge.tokens.estimate import Tally
from tollbridge.tokens.learner import Extra, Weights

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


def shares(tally: Tally, counted: int, weights: Weights, total: int) -> tuple[Share, ...]:
    """The parts of `total`, largest first; what rounding leaves over goes to the largest."""
    amounts: dict[str, float] = {
        "counted before": float(counted),
        "known messages": tally.known,
        "text": weights.text.predict(tally.texts()),
    }
    for feature, amount in tally.extras():
        label = _LABELS[Extra(feature)]
        amounts[label] = amounts.get(label, 0.0) + amount * weights.extra.weights[feature]
    found = sorted(
        (Share(label, round(amount)) for label, amount in amounts.items() if round(amount)),
        key=lambda share: -share.tokens,
    )
    if found:
        left = total - sum(share.tokens for share in found)
        found[0] = Share(found[0].label, found[0].tokens + left)
    return tuple(found)
