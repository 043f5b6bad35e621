"""The tokenizer family of each model."""

from __future__ import annotations

import pytest

from tollbridge.tokens.features import shipped_table
from tollbridge.tokens.tokenizers import _TABLE, family_of, tokenizer

VOCABULARIES = {
    "openai/gpt-5": "o200k_base",
    "openai/gpt-4o-mini": "o200k_base",
    "openai/gpt-4.1": "o200k_base",
    "openai/o3-mini": "o200k_base",
    "openai:gpt-5.2-codex": "o200k_base",
    "openai/gpt-oss-120b": "o200k_base",
    "openai/gpt-4-turbo": "cl100k_base",
    "openai/gpt-3.5-turbo": "cl100k_base",
    "google/gemini-3-flash": "gemma4",
    "google/gemini-2.5-pro": "gemma4",
    "google/gemma-2-9b": "gemma2",
    "alibaba/qwen3-coder": "qwen3",
    "qwen2.5:7b": "qwen3",
    "qwen3-8b": "qwen3",
    "Qwen/Qwen3-6B": "qwen3",
    "qwen-7b": "qwen3",
    "deepseek-r1-distill-qwen-32b": "qwen3",
    "deepseek-r1-distill-llama-70b": "llama3",
    "deepseek/deepseek-v3.2": "deepseek_v3",
    "meta/llama-3.3-70b": "llama3",
    "llama3.2:latest": "llama3",
    "meta/llama-2-7b": "llama2",
    "mistral/mistral-large-3": "mistral_v3",
    "mistral/devstral-small": "mistral_v3",
    "mistral/mixtral-8x22b": "mistral_v2",
    "moonshotai/kimi-k2-thinking": "kimi_k2",
    "zai/glm-4.6": "glm4",
}
WEIGHTED = {
    "anthropic/claude-sonnet-4.5": "claude",
    "anthropic/claude-3-5-haiku-20241022": "claude",
    "anthropic/claude-opus-4.6": "claude",
    "anthropic/claude-opus-4.7": "claude-4.7",
    "anthropic/claude-opus-4-7": "claude-4.7",
    "anthropic/claude-sonnet-5": "claude-4.7",
    "alibaba/qwen3.6-plus": "qwen-3.5",
    "alibaba/qwen3-6-plus": "qwen-3.5",
    "alibaba/qwen4-max": "qwen-3.5",
    "meta/llama-4-maverick": "llama-4",
    "xai/grok-4": "grok",
    "smollm2-135m-instruct": "smollm",
}


@pytest.mark.parametrize(("model", "vocabulary"), VOCABULARIES.items())
def test_a_model_whose_vocabulary_is_bundled_is_counted_with_it(model: str, vocabulary: str) -> None:
    assert family_of(model).vocabulary == vocabulary


@pytest.mark.parametrize(("model", "name"), WEIGHTED.items())
def test_a_model_without_a_bundled_vocabulary_is_counted_by_clusters(model: str, name: str) -> None:
    assert family_of(model).vocabulary is None
    assert family_of(model).name == name


def test_two_unknown_models_are_of_different_families() -> None:
    assert family_of("a/one").name != family_of("b/one").name


def test_every_vocabulary_and_known_tokenizer_in_the_table_exists() -> None:
    for _, family in _TABLE:
        assert family.vocabulary is None or tokenizer(family.vocabulary) is not None, family
        assert family.like is None or family.like in shipped_table().known, family
