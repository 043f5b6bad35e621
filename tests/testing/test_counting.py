"""Counting tokens, and the prompt cache."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.testing.client import DEMO, LIST_DIR, WEATHER, Client, assistant, user

from tollbridge.testing.prompt_cache import PromptCache
from tollbridge.testing.requests import count_image, count_text, split_tokens
from tollbridge.types.media import draw_png


@given(st.text())
def test_the_tokens_of_a_text_join_to_the_text(text: str) -> None:
    assert "".join(split_tokens(text)) == text
    assert count_text(text) == len(split_tokens(text))


@given(st.text(), st.text())
def test_more_text_never_has_fewer_tokens(one: str, other: str) -> None:
    assert count_text(one + other) >= max(count_text(one), count_text(other)) - 1


def test_a_word_of_up_to_six_letters_is_a_token() -> None:
    assert split_tokens("Hello, wonderful  world!") == ["Hello", ",", " wonder", "ful", "  ", "world", "!"]


def test_images_are_counted_by_their_size() -> None:
    def url(width: int, height: int) -> str:
        return "data:image/png;base64," + base64.b64encode(draw_png(width, height)).decode()

    assert [count_image(url(32, 32)), count_image(url(64, 33)), count_image(url(32, 32), "low")] == [1, 4, 85]
    assert count_image(url(4000, 4000)) == 1600
    assert count_image("https://example.com/") == 256


async def test_counting_and_usage_agree(client: Client) -> None:
    image = "data:image/png;base64," + base64.b64encode(draw_png(100, 100)).decode()
    bodies: list[dict[str, Any]] = [
        {"input": "Hello"},
        {"input": [user("One"), assistant("Two"), user("Three")], "instructions": "Be brief."},
        {"input": "Use a tool", "tools": [WEATHER, LIST_DIR]},
        {"input": [user([{"type": "input_image", "image_url": image}])]},
    ]
    for body in bodies:
        counted = await client.post("/responses/input_tokens", {"model": DEMO, **body})
        used = await client.post("/responses", {"model": DEMO, **body})
        assert counted.json["object"] == "response.input_tokens"
        assert counted.json["input_tokens"] == used.json["usage"]["input_tokens"] > 0


async def test_a_prefix_of_an_earlier_prompt_is_cached(client: Client) -> None:
    async def usage(items: list[Any]) -> tuple[int, int]:
        used = (await client.ask(items)).json["usage"]
        return used["input_tokens"], used["input_tokens_details"]["cached_tokens"]

    first, cached = await usage([user("One")])
    assert cached == 0
    more, cached = await usage([user("One"), assistant("Two"), user("Three")])
    assert cached == first < more
    assert (await usage([user("Other"), assistant("Two"), user("Three")]))[1] == 0


async def test_an_answer_that_is_sent_back_is_cached_too(client: Client) -> None:
    first = (await client.ask([user("One")])).json
    [message] = first["output"]
    text = message["content"][0]["text"]
    # In either form: as it was received, or as plain text.
    for item in (message, assistant(text)):
        used = (await client.ask([user("One"), item, user(f"Two {item['content'] == text}")])).json["usage"]
        cached = used["input_tokens_details"]["cached_tokens"]
        assert cached == first["usage"]["total_tokens"] + 4  # the overhead of an item


async def test_different_tools_are_a_different_prefix(client: Client) -> None:
    await client.ask("Hello", tools=[WEATHER])
    used = (await client.ask("Hello", tools=[LIST_DIR])).json["usage"]
    assert used["input_tokens_details"]["cached_tokens"] == 0


def test_the_cache_drops_the_oldest_prefixes() -> None:
    cache = PromptCache(limit=3)
    for word in (b"a", b"b", b"c"):
        cache.use([(word, 0)], [(word, 5)])
    assert cache.use([(b"c", 0)], [(b"c", 5)]).cached_tokens == 5
    assert cache.use([(b"a", 0)], [(b"a", 5)]).cached_tokens == 0
