"""Output limits: which protocols and providers need one, and how it is chosen."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from tollbridge.types.models import OUTPUT_RESERVE, Model, identify

# The least room for an answer with which a request is sent.
MIN_ROOM = 16
# The Messages API requires a limit for the output. Without one of the user or of the model list, it is the
# lowest limit of all Claude models since version 4; older models accept less.
DEFAULT_MAX_TOKENS = 32_000
_OLD_LIMITS = ((re.compile(r"claude-3-5-|claude-3\.5-"), 8_192), (re.compile(r"claude-3-(?!7)"), 4_096))
# OpenAI's newer models accept only `max_completion_tokens`. Many other servers ignore it without an error.
_NEW_LIMIT = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])")


def default_max_tokens(model: str) -> int:
    """Return the output limit that is sent if neither the user nor the model list gives one."""
    return next((limit for pattern, limit in _OLD_LIMITS if pattern.search(model)), DEFAULT_MAX_TOKENS)


def chat_limit_field(model: str) -> str:
    """Return the field of a Chat Completions request that holds the output limit."""
    return "max_completion_tokens" if _NEW_LIMIT.search(model) else "max_tokens"


class OutputLimit(msgspec.Struct, frozen=True):
    """How to choose the output limit of a request whose caller set none.

    If the protocol does not require a limit, it is sent only if the gateway would assume `tokens`, and prompt
    and answer would not fit the window.
    """

    tokens: int  # the most output tokens of the model
    window: int | None = None  # the context window that prompt and answer share, if known
    required: bool = False

    @classmethod
    def for_model(cls, model: Model, find_default: Callable[[str], int] | None = None) -> OutputLimit | None:
        """Return how the limit of a request is chosen; `None` if no limit is needed.

        Anthropic's own protocol requires a limit. Gateways that send requests for Claude to it add the
        model's largest limit, which providers reject if it does not fit the window next to the prompt. If the
        protocol requires a limit, `find_default` returns that of a model whose own is not known.
        """
        if find_default is None and not identify(model.id).is_claude:
            return None
        tokens = model.max_output_tokens or None  # a limit of 0 is not usable
        if tokens is None and find_default is not None:
            tokens = find_default(model.id)
        return None if tokens is None else cls(tokens, model.context_window, find_default is not None)

    def choose(self, prompt: int | None, *, exact: bool = False) -> int | None:
        """Return the limit for a prompt, or `None` if none should be sent.

        A limit that is too low would cut the answer. One that is too high is rejected with the exact numbers,
        so an estimate does not make it lower than a usual answer needs. `exact` says that the tokens of the
        prompt are known and not estimated.
        """
        limit = self.tokens
        if self.window is not None and prompt is not None:
            limit = min(limit, max(MIN_ROOM if exact else OUTPUT_RESERVE, self.window - prompt))
        return limit if self.required or limit < self.tokens else None
