"""Prompts that do not fit, by the sentences of servers that have no code for it, and the numbers in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What the prompt came to, and what the model takes.
_TOKENS, _LIMIT = r"(?P<tokens>\d[\d,]*)", r"(?P<limit>\d[\d,]*)"
_SENTENCES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"request \({_TOKENS} tokens\) exceeds the available context size \({_LIMIT}",
        rf"prompt is too long: {_TOKENS} tokens > {_LIMIT}",
        rf"`?max_tokens`? exceed context limit: {_TOKENS} \+ [\d,]+ > {_LIMIT}",
        rf"passed {_TOKENS} input tokens.*?context length is only {_LIMIT}",
        rf"prompt \(length {_TOKENS}\) is longer than the maximum model length of {_LIMIT}",
        rf"prompt contains {_TOKENS} tokens.*?too large for model with {_LIMIT}",
        # What was `requested` is no number of the prompt: the answer's share is in it. Nor is an `at least`.
        rf"(?:maximum (?:context|prompt) length is|configured limit of|context length of only) {_LIMIT}"
        rf"(?:.*?(?:resulted in|contains|request has|your (?:messages|prompt)(?:(?!at least)[^\d])*)"
        rf"(?: about)? ?{_TOKENS})?",
        rf"input token count \(?{_TOKENS}\)? exceeds the maximum[^\d]*{_LIMIT}",
        rf"input token count exceeds the maximum[^\d]*{_LIMIT}",
        rf"{_TOKENS} (?:input )?tokens?,? (?:but|which|and)[^\d]{{0,60}}(?:limit|maximum|window)"
        rf"[^\d]{{0,30}}{_LIMIT}",
        r"(?:input|prompt) is too long",
        r"input length and `?max_tokens`? exceed context",
        r"exceeds? (?:the|this|its) (?:available |model'?s? )?(?:maximum )?(?:context|prompt) "
        r"(?:length|window|size)",
        r"maximum context length",
        r"context (?:length|window) (?:was )?exceeded",
    )
)
# "(6800 in the messages, 200 in the functions, and 8000 in the completion)": whose share each number is.
_SHARES = re.compile(r"\(([^()]*\b(?:completion|output)\b[^()]*)\)", re.IGNORECASE)
_SHARE = re.compile(r"(\d(?:[\d,]*\d)?) ([^\d,;]+)")
_ANSWER = re.compile(r"\b(?:completion|output)\b", re.IGNORECASE)
_WITH_ANSWER = re.compile(r"\b(?:requested|max_tokens|completion|output)\b", re.IGNORECASE)


def is_too_long(message: str) -> bool:
    return any(sentence.search(message) for sentence in _SENTENCES)


def read_numbers(fields: Mapping[str, Any], message: str) -> tuple[int | None, int | None]:
    """What the prompt came to, without what was kept for the answer, and what the model takes."""
    tokens, limit = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(tokens, int) and isinstance(limit, int):
        return tokens, limit
    for sentence in _SENTENCES:
        found = sentence.search(message)
        if found and found.groupdict():
            said = found.groupdict()
            return _shares(message) or _number(said.get("tokens")), _number(said.get("limit"))
    return None, None


def is_shared(message: str) -> bool:
    """Whether the answer's share is, or may be, a part of what did not fit."""
    return _WITH_ANSWER.search(message) is not None


def _shares(message: str) -> int | None:
    listed = _SHARES.search(message)
    shares = _SHARE.findall(listed[1]) if listed else []
    return sum(_number(digits) or 0 for digits, of in shares if not _ANSWER.search(of)) or None


def _number(digits: str | None) -> int | None:
    return int(digits.replace(",", "")) if digits else None
