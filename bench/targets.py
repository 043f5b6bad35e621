"""Performance targets: compare a measured value with its target, and exit with an error if any is missed."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def at_most(label: str, value: float, target: float, unit: str = "") -> list[str]:
    """Return a message if the value exceeds the target, or is NaN; else an empty list."""
    return [] if value <= target else [f"{label}: {value:.4g}{unit} (target: at most {target:g}{unit})"]


def at_least(label: str, value: float, target: float, unit: str = "") -> list[str]:
    """Return a message if the value is below the target, or is NaN; else an empty list."""
    return [] if value >= target else [f"{label}: {value:.4g}{unit} (target: at least {target:g}{unit})"]


def exit_if_missed(missed: Sequence[str]) -> None:
    """Exit with an error that lists the missed targets, if there are any."""
    if missed:
        sys.exit(f"Missed targets: {'; '.join(missed)}.")
