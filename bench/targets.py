"""What a bench is held to: a figure beside its target, and a process that fails by those it missed."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def at_most(what: str, found: float, target: float, unit: str = "") -> list[str]:
    """The target as missed, or nothing; what could not be measured has missed it too."""
    return [] if found <= target else [f"{what}: {found:.4g}{unit}, not at most {target:g}{unit}"]


def at_least(what: str, found: float, target: float, unit: str = "") -> list[str]:
    return [] if found >= target else [f"{what}: {found:.4g}{unit}, not at least {target:g}{unit}"]


def leave(missed: Sequence[str]) -> None:
    """Ends the process, in error where a target was missed."""
    if missed:
        sys.exit(f"Missed: {'; '.join(missed)}.")
