"""The simulated prompt cache behaves as providers document theirs, in all protocols."""

from __future__ import annotations

import pytest

from tollbridge import Account, ChatRequest, Engine, Message, Role, Settings, Usage
from tollbridge.protocols import Backend
from tollbridge.testing.prompt_cache import PROVIDER_CACHE, CacheSettings, PromptCache
from tollbridge.testing.server import Gateway

LONG = "Read the file before you change it, and say why you do so.\n" * 150
PREFACE = [(b"model", 0)]


def prompt(*texts: bytes) -> list[tuple[bytes, int]]:
    return [(text, len(text)) for text in texts]


@pytest.fixture
def cache() -> PromptCache:
    return PromptCache(PROVIDER_CACHE)


def test_cached_tokens_are_whole_blocks(cache: PromptCache) -> None:
    assert cache.use(PREFACE, prompt(b"a" * 3_000)).cached_tokens == 0
    use = cache.use(PREFACE, prompt(b"a" * 3_000, b"b" * 500))
    assert use.cached_tokens == 2_944, "23 blocks of 128 tokens"
    assert use.written_tokens == 3_456 - 2_944, "up to the last whole block"


def test_a_prompt_is_cached_up_to_the_first_difference(cache: PromptCache) -> None:
    cache.use(PREFACE, prompt(b"a" * 2_000 + b"b" * 2_000))
    cached = cache.use(PREFACE, prompt(b"a" * 2_000 + b"c" * 2_000)).cached_tokens
    assert 1_792 <= cached <= 2_000


def test_short_prompts_are_not_cached(cache: PromptCache) -> None:
    uses = [cache.use(PREFACE, prompt(b"a" * 1_000)) for _ in range(2)]
    assert [(use.cached_tokens, use.written_tokens) for use in uses] == [(0, 0)] * 2


def test_every_use_extends_the_lifetime(cache: PromptCache) -> None:
    for seconds, hit in ((0, False), (599, True), (599, True), (601, False)):
        cache.advance(seconds)
        assert bool(cache.use(PREFACE, prompt(b"a" * 2_000)).cached_tokens) == hit


def test_every_model_and_every_provider_has_its_own_cache(cache: PromptCache) -> None:
    cache.use(PREFACE, prompt(b"a" * 2_000))
    assert cache.use([(b"other", 0)], prompt(b"a" * 2_000)).cached_tokens == 0
    cache.switch_provider()
    other = cache.use(PREFACE, prompt(b"a" * 2_000))
    assert (other.cached_tokens, other.provider) == (0, "beta")
    cache.switch_provider()
    assert cache.use(PREFACE, prompt(b"a" * 2_000)).cached_tokens == 1_920


def test_without_settings_no_writes_and_no_provider_are_reported() -> None:
    use = PromptCache().use(PREFACE, prompt(b"a"))
    assert (use.written_tokens, use.provider) == (None, None)


@pytest.mark.parametrize("backend", ["openresponses", "chat-completions", "anthropic-messages", "ai-sdk"])
async def test_reads_and_writes_are_reported_in_every_protocol(backend: Backend) -> None:
    async with Gateway(cache=PROVIDER_CACHE) as gateway, Engine.open(Settings(), persistent=False) as engine:
        account = Account("test", gateway.url, backend, "none")
        messages = [Message(Role.SYSTEM, LONG), Message(Role.USER, "Hello")]
        request = ChatRequest(model="tollbridge/demo", messages=messages)
        usages = [(await engine.create(request, account)).usage or Usage() for _ in range(2)]
    size = usages[0].input_tokens or 0
    whole = size - size % 128
    assert whole > 2_000
    assert [(usage.cached_tokens, usage.cache_write_tokens) for usage in usages] == [(0, whole), (whole, 0)]


async def test_a_scenario_switches_the_provider() -> None:
    settings = CacheSettings(minimum=1, block=1, providers=("alpha", "beta"))
    async with (
        Gateway(cache=settings, scenario="provider-switch") as gateway,
        Engine.open(Settings(), persistent=False) as engine,
    ):
        account = Account("test", gateway.url, "openresponses", "none")
        request = ChatRequest(model="tollbridge/demo", messages=[Message(Role.USER, "Hello")])
        usages = [(await engine.create(request, account)).usage or Usage() for _ in range(3)]
    size = usages[0].input_tokens
    assert [usage.cached_tokens for usage in usages] == [0, 0, size]
