"""Which tokenizer a model speaks, and what its provider adds around the text: one table, by model id."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec


class Overheads(msgspec.Struct, frozen=True):
    """What a prompt costs beyond its text, before anything was learned: documented or measured by others."""

    base: float = 3.0
    message: float = 4.0
    tools_scale: float = 1.0  # rendered tools per token of their compact JSON
    tools_present: float = 60.0
    tool: float = 8.0


class Family(msgspec.Struct, frozen=True):
    """Models that split text alike.

    `vocabulary` is a bundled one, exact for these models. Where it is `None`, text is counted in weighted
    o200k categories: `like` names the tokenizers of the population the weights start from (empty: all of
    them), `scale` and `latin` what is known of the distance (`latin` applies to Latin letters alone), and
    `doubt` how far from there the truth may be, as a share of the population's own spread.
    """

    name: str
    vocabulary: str | None = None
    like: tuple[str, ...] = ()
    scale: float = 1.0
    latin: float = 1.0
    doubt: float = 1.0
    overheads: Overheads = Overheads()


_OPENAI = Overheads(base=3, message=4, tools_scale=0.85, tools_present=24, tool=4)
_ANTHROPIC = Overheads(base=6, message=3, tools_scale=1.05, tools_present=400, tool=10)
_GOOGLE = Overheads(base=1, message=2, tools_scale=0.8, tools_present=0, tool=2)
_CHATML = Overheads(base=3, message=4, tools_scale=1.0, tools_present=140, tool=20)
_MISTRAL = Overheads(base=1, message=2, tools_scale=1.0, tools_present=60, tool=20)
_GROK = Overheads(base=155, message=4, tools_scale=1.0, tools_present=60, tool=10)
_LLAMA_3 = Family("llama-3", "llama3", overheads=_CHATML)

# The first pattern found in the model's id (lower case, without its creator) decides. Where a creator's
# newest models are not known to keep the vocabulary of the older ones, they still start from it: the
# learner is free to move.
_TABLE: tuple[tuple[str, Family], ...] = (
    (r"gpt-3\.5|gpt-4(?!o|\.)|text-embedding", Family("gpt-4", "cl100k_base", overheads=_OPENAI)),
    (r"gpt-|\bo[134]\b|codex|computer-use", Family("gpt", "o200k_base", overheads=_OPENAI)),
    # Claude 4.7 and later cut Latin letters about 1.3 times as fine, everything else as before.
    (
        r"claude.*(opus-(4[.-][7-9]|[5-9])|(sonnet|haiku)-[5-9])",
        Family("claude-4.7", like=("claude2",), scale=1.1, latin=1.3, doubt=0.3, overheads=_ANTHROPIC),
    ),
    (r"claude", Family("claude", like=("claude2",), scale=1.1, doubt=0.2, overheads=_ANTHROPIC)),
    (r"gemma-?2", Family("gemma-2", "gemma2", overheads=_GOOGLE)),
    (r"gemini|gemma", Family("gemini", "gemma4", overheads=_GOOGLE)),
    (
        r"qwen-?3\.[5-9]|qwen-?(3-)?[4-9](?!\d*b)",  # qwen3-8b is eight billion, not version 3.8
        Family("qwen-3.5", like=("qwen36",), doubt=0.1, overheads=_CHATML),
    ),
    (r"qwen|qwq|qvq", Family("qwen", "qwen3", overheads=_CHATML)),
    (r"distill-llama", _LLAMA_3),
    (r"deepseek", Family("deepseek", "deepseek_v3", overheads=_CHATML)),
    (r"llama-?4", Family("llama-4", like=("llama4",), doubt=0.1, overheads=_CHATML)),
    (r"llama-?2|tinyllama|vicuna", Family("llama-2", "llama2", overheads=_CHATML)),
    (r"code-?llama", Family("codellama", "codellama", overheads=_CHATML)),
    (r"llama-?3|llama-guard|hermes-?[34]", _LLAMA_3),
    (r"mistral-7b|mixtral", Family("mistral-spm", "mistral_v2", overheads=_MISTRAL)),
    (r"\w+stral", Family("mistral", "mistral_v3", overheads=_MISTRAL)),
    (r"kimi-?k3", Family("kimi-k3", "kimi_k3", overheads=_CHATML)),
    (r"kimi|moonshot", Family("kimi", "kimi_k2", overheads=_CHATML)),
    (r"glm-?[5-9]", Family("glm-5", like=("glm4",), doubt=0.3, overheads=_CHATML)),
    (r"glm", Family("glm", "glm4", overheads=_CHATML)),
    (r"phi-?4", Family("phi-4", "phi4", overheads=_CHATML)),
    (r"olmo", Family("olmo", "olmo2", overheads=_CHATML)),
    (r"command", Family("command", like=("commandr",), doubt=0.2, overheads=_CHATML)),
    (r"smollm", Family("smollm", like=("smollm2",), doubt=0.1, overheads=_CHATML)),
    (r"grok", Family("grok", overheads=_GROK)),
)

_COMPILED = tuple((re.compile(pattern), family) for pattern, family in _TABLE)


def _names(model: str) -> Iterator[str]:
    """The id without its creator, then the whole: `creator/family-x`, `creator:family`, a path to a file."""
    lowered = model.lower()
    head, _, tail = lowered.replace(":", "/").rpartition("/")
    yield tail
    if head:
        yield lowered


@lru_cache(maxsize=1024)
def family_of(model: str) -> Family:
    """The family of a model; one of its own, named after it, for a model nobody told us of."""
    for name in _names(model):
        for pattern, family in _COMPILED:
            if pattern.search(name):
                return family
    return Family(f"unknown:{model.lower()}", overheads=_CHATML)


def families() -> tuple[Family, ...]:
    """Every family of the table, once."""
    return tuple({family.name: family for _, family in _TABLE}.values())
