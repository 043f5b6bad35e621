"""The chain of a prompt: what changes it, how differences are described, what reports conclude from them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.policy.caching import rules_for
from tollbridge.tokens.prompt_cache import (
    CacheReport,
    PromptChain,
    SentPrompt,
    explain,
    find_difference,
    make_chain,
)
from tollbridge.types.events import CacheDiagnosis, Usage
from tollbridge.types.media import draw_png
from tollbridge.types.messages import ChatRequest, DataPart, Message, Role, Tool, ToolCallPart
from tollbridge.types.models import Prices

SENTENCE = "Read the file before you change it, and say why you do so. "
TEXTS = st.text(max_size=40)


def make_request(*texts: str, system: str = SENTENCE * 40, **fields: Any) -> ChatRequest:
    roles = (Role.USER, Role.ASSISTANT)
    messages = [Message(roles[index % 2], text) for index, text in enumerate(texts)]
    return ChatRequest(model="m", messages=[Message(Role.SYSTEM, system), *messages], **fields)


def describe(previous: ChatRequest, current: ChatRequest) -> str | None:
    difference = find_difference(make_chain(previous), make_chain(current))
    return None if difference is None else difference.sentence


def make_tools(names: str) -> tuple[Tool, ...]:
    return tuple(Tool(name, f"Does {name}.") for name in names)


# --- Differences ---


@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=3), TEXTS)
def test_more_messages_are_no_difference(texts: list[str], more: list[str], system: str) -> None:
    previous = make_request(*texts, system=system)
    current = make_request(*texts, *more, system=system)
    assert describe(previous, current) is None
    assert describe(current, previous) is None, "nor are fewer: all of the prompt was read before"


@given(st.lists(TEXTS, min_size=1, max_size=6), st.data())
def test_a_changed_message_is_the_first_difference(texts: list[str], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(texts) - 1))
    changed = [*texts[:index], texts[index] + "!", *texts[index + 1 :]]
    difference = find_difference(make_chain(make_request(*texts)), make_chain(make_request(*changed)))
    assert difference is not None
    assert difference.kind == "messages"
    kept = make_chain(make_request(*texts[:index]))
    assert difference.kept == kept.length


@given(st.text("abc. \n", max_size=900), st.text("abc. \n", max_size=900), TEXTS, TEXTS)
def test_the_reported_place_of_a_system_text_contains_the_change(
    start: str, end: str, old: str, new: str
) -> None:
    before, after = f"{start}{old}{end}", f"{start}{new}{end}"
    sentence = describe(make_request(system=before), make_request(system=after))
    if before == after:
        assert sentence is None
        return
    assert sentence is not None
    if not before or not after or "were removed after" in sentence:
        return
    words = sentence.replace(",", "").split()
    first, last, total = int(words[6]), int(words[8]), int(words[10].rstrip("."))
    assert total == len(after)
    # The first and the last character that differ.
    changed = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    assert first - 1 <= changed
    common_end = next(
        (i for i, (a, b) in enumerate(zip(before[::-1], after[::-1], strict=False)) if a != b),
        min(len(before), len(after)),
    )
    assert last >= len(after) - common_end


@pytest.mark.parametrize(
    ("previous", "current", "sentence"),
    [
        ("abcd", "abcde", 'The tool "e" was added.'),
        ("abcd", "xabyc", 'The tool "x" was added (and 1 other).'),
        ("abcd", "ac", 'The tool "b" was removed (and 1 other).'),
        ("abcd", "", 'The tool "a" was removed (and 3 others).'),
        ("abcd", "bcda", 'The tool "a" moved from position 1 to 4 of 4.'),
        ("abcd", "dabc", 'The tool "d" moved from position 4 to 1 of 4.'),
        ("abcd", "abcd", None),
    ],
)
def test_the_first_changed_tool_is_named(previous: str, current: str, sentence: str | None) -> None:
    one, other = (make_request("Hi", tools=make_tools(names)) for names in (previous, current))
    assert describe(one, other) == sentence


@pytest.mark.parametrize(
    ("previous", "current", "sentence"),
    [
        ("ABC", "AC", "Message 2 (assistant) was removed."),
        ("ABC", "AxBC", "Message 2 (assistant) was inserted."),
        ("ABCDE", "AE", "Messages 2 to 4 were removed."),
        ("ABC", "AxC", "Message 2 of 3 (assistant) changed."),
    ],
)
def test_changed_messages_are_named(previous: str, current: str, sentence: str) -> None:
    roles = dict.fromkeys("ACE", Role.USER)

    def make(names: str) -> ChatRequest:
        messages = [Message(roles.get(name, Role.ASSISTANT), name) for name in names]
        return ChatRequest(model="m", messages=messages)

    assert describe(make(previous), make(current)) == sentence


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"reasoning_effort": "high"}, "The reasoning effort changed from the default to high."),
        ({"tool_choice": "required"}, "The option `tool_choice` was added."),
        ({"extra": {"service_tier": "flex"}}, "The option `service_tier` was added."),
        ({"extra": {"user": "u", "metadata": {"a": 1}}}, None),
        ({"temperature": 1.0, "max_output_tokens": 7, "metadata": {"a": "b"}}, None),
    ],
)
def test_options_that_are_part_of_the_prompt_are_compared(
    fields: dict[str, Any], sentence: str | None
) -> None:
    assert describe(make_request("Hi"), make_request("Hi", **fields)) == sentence


def test_the_order_of_arguments_does_not_matter() -> None:
    calls = [ToolCallPart("c", "t", {"a": 1, "b": 2}), ToolCallPart("c", "t", {"b": 2, "a": 1})]
    one, other = (ChatRequest(model="m", messages=[Message(Role.ASSISTANT, [call])]) for call in calls)
    assert describe(one, other) is None


def test_a_chain_has_no_text() -> None:
    request = make_request("My password is tulip.", tools=make_tools("a"), reasoning_effort="low")
    data = msgspec.msgpack.encode(make_chain(request))
    for word in (b"tulip", b"file", b"Does"):
        assert word not in data
    assert msgspec.msgpack.decode(data, type=PromptChain) == make_chain(request)


def test_an_image_counts_as_its_tokens_and_not_as_its_bytes() -> None:
    image = draw_png(640, 480)
    padded = image + bytes(1_000_000)
    lengths = [
        make_chain(
            ChatRequest(model="m", messages=[Message(Role.USER, [DataPart(data, "image/png")])])
        ).length
        for data in (image, padded)
    ]
    assert abs(lengths[0] - lengths[1]) < 10
    assert 1_000 < lengths[0] < 10_000


def test_lifetimes_are_read_from_the_request() -> None:
    cases: list[tuple[dict[str, Any], float | None]] = [
        ({"extra": {"cache_ttl": "1h"}}, 3600.0),
        ({"extra": {"prompt_cache_options": {"ttl": "30m"}}}, 1800.0),
        ({"extra": {"prompt_cache_retention": "24h"}}, 86_400.0),
        ({"cache_points": {"x": {"type": "ephemeral", "ttl": "5m"}, "y": {"ttl": "1h"}}}, 3600.0),
        ({"extra": {"cache_ttl": ["1h"]}}, None),
    ]
    assert [make_chain(make_request("Hi", **fields)).lifetime for fields, _ in cases] == [
        lifetime for _, lifetime in cases
    ]


# --- Reports ---


def send(request: ChatRequest, **fields: Any) -> SentPrompt:
    started, model = fields.pop("started", 0.0), fields.pop("model", "openai/gpt-5.4")
    names = {"input_tokens", "cached_tokens", "cache_write_tokens"}
    usage = Usage(output_tokens=5, **{name: fields.pop(name) for name in names & fields.keys()})
    chain = msgspec.structs.replace(make_chain(request), model=model)
    return SentPrompt(turn="t", started=started, chain=chain, usage=usage, **fields)


def compare(
    current: dict[str, Any], previous: dict[str, Any], diagnosis: CacheDiagnosis | None = None
) -> CacheReport:
    first = send(make_request("Hi"), **{"input_tokens": 10_000, "cached_tokens": 0, **previous})
    second = send(
        current.pop("request", make_request("Hi", "Hello", "Go on")),
        **{"input_tokens": 11_000, "cached_tokens": 0, "started": 60.0, **current},
    )
    return explain(second, first, None, diagnosis)


def test_a_hit_is_no_miss() -> None:
    report = compare({"cached_tokens": 9_984}, {})
    assert (report.missed, report.kind, report.expected, report.actual) == (False, "hit", 10_000, 9_984)


def test_a_gateway_that_reports_no_cached_tokens_is_not_blamed() -> None:
    assert compare({"cached_tokens": None}, {}).kind == "unreported"


def test_the_longer_lifetime_of_the_previous_request_counts() -> None:
    claude = {"model": "anthropic/claude-sonnet-4.5"}
    stored = {**claude, "cache_write_tokens": 9_000}
    assert compare({**claude, "started": 20 * 60.0}, stored).kind == "expired"
    first = send(
        make_request("Hi", extra={"cache_ttl": "1h"}), input_tokens=10_000, cached_tokens=0, **stored
    )
    second = send(
        make_request("Hi", "Hello"), started=20 * 60.0, input_tokens=11_000, cached_tokens=0, **claude
    )
    report = explain(second, first)
    assert (report.kind, report.expected) == ("unknown", 9_000)


def test_a_model_that_caches_only_on_request_is_not_expected_to_hit() -> None:
    claude = {"model": "anthropic/claude-sonnet-4.5"}
    report = compare(dict(claude), claude)
    assert (report.missed, report.kind) == (False, "not_requested")


def test_content_that_the_gateway_removes_is_named() -> None:
    report = compare({"input_tokens": 4_000}, {})
    assert (report.missed, report.kind) == (True, "cleared")


def test_a_difference_at_the_end_does_not_explain_everything() -> None:
    changed = make_request("Hi, it is late", "Hello", "Go on")
    report = compare({"request": changed}, {})
    assert report.kind == "messages"
    assert "It explains only a part" in report.reason


def test_the_reason_of_the_provider_comes_first() -> None:
    report = compare({}, {}, CacheDiagnosis("service_tier_changed", 9_000))
    assert (report.kind, report.source) == ("option", "gateway")
    assert report.reason == "The service tier changed."


def test_our_chain_completes_the_reason_of_the_provider() -> None:
    changed = make_request("Hi", "Hello", "Go on", tools=make_tools("a"))
    report = compare({"request": changed}, {}, CacheDiagnosis("tools_changed", 9_000))
    assert (report.reason, report.source) == ('The tool "a" was added.', "gateway")


def test_the_input_of_openai_contains_the_system_text() -> None:
    changed = make_request("Hi", "Hello", system=SENTENCE * 39 + "Today is Monday.")
    report = compare({"request": changed}, {}, CacheDiagnosis("input_changed", 9_000))
    assert (report.kind, report.source) == ("system", "gateway")
    assert report.reason.startswith("The system text changed within characters ")


def test_an_unknown_reason_of_the_provider_is_not_used() -> None:
    assert compare({}, {}, CacheDiagnosis("unavailable")).source == "tollbridge"


def test_the_cost_of_a_miss_is_the_difference_to_a_hit() -> None:
    prices = Prices(Decimal("0.000003"), Decimal("0.000015"), Decimal("0.0000003"), Decimal("0.00000375"))
    claude = {"model": "anthropic/claude-sonnet-4.5"}
    first = send(
        make_request("Hi"), input_tokens=10_000, cached_tokens=0, cache_write_tokens=10_000, **claude
    )
    second = send(
        make_request("Hi!", "Hello"),
        input_tokens=11_000,
        cached_tokens=0,
        cache_write_tokens=11_000,
        **claude,
    )
    # 10,000 tokens were written for $3.75 per million and could have been read for $0.30.
    assert explain(second, first, prices).cost == Decimal("0.0345")
    unknown = Prices(Decimal("0.000003"), Decimal("0.000015"))
    assert explain(second, first, unknown).cost is None


@pytest.mark.parametrize(
    ("model", "minimum", "explicit"),
    [
        ("anthropic/claude-opus-4.5", 4096, True),
        ("claude-haiku-4-5-20251001", 4096, True),
        ("anthropic/claude-sonnet-4.6", 2048, True),
        ("claude-3-5-haiku-20241022", 2048, True),
        ("anthropic/claude-sonnet-4.5", 1024, True),
        ("google/gemini-2.5-flash", 2048, False),
        ("google/gemini-3.5-flash", 4096, False),
        ("openai/gpt-5.4", 1024, False),
    ],
)
def test_minimums_are_those_of_the_documentation(model: str, minimum: int, explicit: bool) -> None:
    rules = rules_for(model)
    assert (rules.minimum, rules.explicit) == (minimum, explicit)
