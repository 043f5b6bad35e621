"""The toll of an answer: what it cost and how fast it came. What is not known is left out, not shown as 0."""

from __future__ import annotations

import msgspec

from tollbridge.core.usage import Usage

_MEASURABLE = 0.05  # seconds: below that, an answer came in one piece


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from sending the request; `first_token` is when the model first said anything."""

    first_token: float | None
    total: float

    def tokens_per_second(self, usage: Usage | None) -> float | None:
        """How fast the output came once it had begun; `None` where too little came to measure it."""
        if usage is None or self.first_token is None or not usage.output_tokens or usage.output_tokens < 2:
            return None
        flowing = self.total - self.first_token
        return None if flowing < _MEASURABLE else (usage.output_tokens - 1) / flowing


def toll_line(usage: Usage | None, timing: Timing) -> str:
    """`31 in (12 cached) · 14 out (3 reasoning) · first token 0.21 s · 86 tokens/s`"""
    parts: list[str] = []
    if usage is not None and usage.known:
        parts += _tokens(usage.input_tokens, "in", usage.cached_tokens, "cached")
        parts += _tokens(usage.output_tokens, "out", usage.reasoning_tokens, "reasoning")
        if not parts and usage.total_tokens is not None:
            parts.append(f"{usage.total_tokens:,} tokens")
    if timing.first_token is not None:
        parts.append(f"first token {_seconds(timing.first_token)}")
    speed = timing.tokens_per_second(usage)
    parts.append(f"in all {_seconds(timing.total)}" if speed is None else f"{speed:,.0f} tokens/s")
    return " · ".join(parts)


def _tokens(whole: int | None, name: str, part: int | None, part_name: str) -> list[str]:
    if whole is None:
        return [] if part is None else [f"{part:,} {part_name}"]
    return [f"{whole:,} {name}" if part is None else f"{whole:,} {name} ({part:,} {part_name})"]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
