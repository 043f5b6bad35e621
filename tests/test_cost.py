"""The cost of requests, calculated by hand from recorded usage, and read from recorded bills."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.recorded_streams import RECORDINGS, recordings_in
from tollbridge.protocols.billing import read_billing_headers
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.model_list import read_model
from tollbridge.types.events import Billing, Cost, Finished, Usage
from tollbridge.types.models import Prices, PriceTier, explain_difference

BLOCKS: dict[str, dict[str, Any]] = json.loads((RECORDINGS / "usage" / "blocks.json").read_bytes())
VERCEL_RESPONSES: dict[str, dict[str, Any]] = json.loads((RECORDINGS / "usage" / "vercel.json").read_bytes())

# Prices per token, as a gateway lists them.
SONNET = {
    "input": "0.000003",
    "output": "0.000015",
    "input_cache_read": "0.0000003",
    "input_cache_write": "0.00000375",
    "web_search": "0.01",
}
HAIKU = {
    "input": "0.000001",
    "output": "0.000005",
    "input_cache_read": "0.0000001",
    "input_cache_write": "0.00000125",
}
SONNET_5 = {
    "prompt": "0.000002",
    "completion": "0.00001",
    "input_cache_read": "0.0000002",
    "input_cache_write": "0.0000025",
}
SOL = {
    "input": "0.000005",
    "output": "0.00003",
    "input_cache_read": "0.0000005",
    "input_cache_write": "0.00000625",
}
GPT_5 = {"input": "0.00000125", "output": "0.00001", "input_cache_read": "0.000000125"}
GPT_5_MINI = {"prompt": "0.00000025", "completion": "0.000002", "input_cache_read": "0.000000025"}
FLASH = {"prompt": "0.0000003", "completion": "0.0000025", "input_cache_read": "0.00000003"}
GROK = {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.00000075"}
DEEPSEEK = {"input": "0.0000003", "output": "0.0000012", "input_cache_read": "0.000000006"}
GPT_OSS = {"input": "0.00000015", "output": "0.0000006", "input_cache_read": "0.000000075"}
MISTRAL = {"input": "0.0000005", "output": "0.0000015", "input_cache_read": "0.00000005"}

# The block, the prices of its model, and the cost that was calculated by hand.
COSTS = [
    # 7 x 0.000003 + 1069 x 0.00000375 + 60 x 0.000015 = 0.000021 + 0.00400875 + 0.0009
    ("anthropic-write", SONNET, "0.00492975"),
    # 3 x 0.000001 + 9511 x 0.0000001 + 1944 x 0.000005 = 0.000003 + 0.0009511 + 0.00972
    ("anthropic-read", HAIKU, "0.0106741"),
    # 3 x 0.000001 + 9511 x 0.0000001 + 1956 x 0.00000125 + 44 x 0.000005
    # = 0.000003 + 0.0009511 + 0.002445 + 0.00022
    ("anthropic-read-and-write", HAIKU, "0.0036191"),
    # 7744 x 0.000003 + 353 x 0.000015 + 1 search x 0.01 = 0.023232 + 0.005295 + 0.01; thinking is output
    ("anthropic-search-and-thinking", SONNET, "0.038527"),
    # 10809 x 0.000003 + 644 x 0.000015 + 1 search x 0.01 = 0.032427 + 0.00966 + 0.01
    ("anthropic-search", SONNET, "0.052087"),
    # 6 x 0.000002 + 20443 x 0.0000002 + 574 x 0.0000025 + 489 x 0.00001
    # = 0.000012 + 0.0040886 + 0.001435 + 0.00489
    ("anthropic-agent", SONNET_5, "0.0104256"),
    # (4020 - 4012) x 0.000005 + 4012 x 0.00000625 + 5 x 0.00003 = 0.00004 + 0.025075 + 0.00015
    ("openai-write", SOL, "0.025265"),
    # (4020 - 4012) x 0.000005 + 4012 x 0.0000005 + 5 x 0.00003 = 0.00004 + 0.002006 + 0.00015
    ("openai-read", SOL, "0.002196"),
    # (4020 - 4012) x 0.000005 + 4012 x 0.00000625 + 4 x 0.00003 = 0.00004 + 0.025075 + 0.00012
    ("openai-chat-write", SOL, "0.025235"),
    # (4020 - 4012) x 0.000005 + 4012 x 0.0000005 + 4 x 0.00003 = 0.00004 + 0.002006 + 0.00012
    ("openai-chat-read", SOL, "0.002166"),
    # (9703 - 8576) x 0.00000125 + 8576 x 0.000000125 + 638 x 0.00001 = 0.00140875 + 0.001072 + 0.00638
    ("openai-read-and-reasoning", GPT_5, "0.00886075"),
    # 45 x 0.00000125 + 1719 x 0.00001 = 0.00005625 + 0.01719; the 1408 of reasoning are part of 1719
    ("openai-reasoning", GPT_5, "0.01724625"),
    # As for OpenAI itself: 0.00004 + 0.025075 + 0.00015
    ("openrouter-write", SOL, "0.025265"),
    # 0.00004 + 0.002006 + 0.00015
    ("openrouter-read", SOL, "0.002196"),
    # (3214 - 3211) x 0.000003 + 3211 x 0.00000375 + 100 x 0.000015 = 0.000009 + 0.01204125 + 0.0015
    ("openrouter-claude-write", SONNET, "0.01355025"),
    # (3329 - 3211 - 115) x 0.000003 + 3211 x 0.0000003 + 115 x 0.00000375 + 53 x 0.000015
    # = 0.000009 + 0.0009633 + 0.00043125 + 0.000795
    ("openrouter-claude-read-and-write", SONNET, "0.00219855"),
    # 270 x 0.0000003 + 28 x 0.0000025 = 0.000081 + 0.00007
    ("openrouter-gemini", FLASH, "0.000151"),
    # 73 x 0.00000025 + 162 x 0.000002 = 0.00001825 + 0.000324
    ("openrouter-reasoning", GPT_5_MINI, "0.00034225"),
    # (687 - 682) x 0.000003 + 682 x 0.00000075 + 240 x 0.000015 = 0.000015 + 0.0005115 + 0.0036
    ("openrouter-grok", GROK, "0.0041265"),
    # 326 x 0.0000003 + 91 x 0.0000025 = 0.0000978 + 0.0002275
    ("openrouter-own-key", FLASH, "0.0003253"),
    # 31 x 0.00000025 + 80 x 0.000002 = 0.00000775 + 0.00016
    ("openrouter-file", GPT_5_MINI, "0.00016775"),
    # 875 x 0.0000003 + 79 x 0.0000012 = 0.0002625 + 0.0000948
    ("deepseek-miss", DEEPSEEK, "0.0003573"),
    # (563 - 512) x 0.0000003 + 512 x 0.000000006 + 116 x 0.0000012 = 0.0000153 + 0.000003072 + 0.0001392
    ("deepseek-hit", DEEPSEEK, "0.000157572"),
    # (336 - 256) x 0.00000015 + 256 x 0.000000075 + 96 x 0.0000006 = 0.000012 + 0.0000192 + 0.0000576
    ("groq-read", GPT_OSS, "0.0000888"),
    # 254 x 0.00000015 + 174 x 0.0000006 = 0.0000381 + 0.0001044
    ("groq-reasoning", GPT_OSS, "0.0001425"),
    # (70 - 69) x 0.0000005 + 69 x 0.00000005 + 12 x 0.0000015 = 0.0000005 + 0.00000345 + 0.000018
    ("mistral-read", MISTRAL, "0.00002195"),
]
# What OpenRouter charged, read off the recordings. For the user's own key it charged nothing; the provider
# charged `upstream_inference_cost`.
BILLS = {
    "openrouter-write": Billing(Decimal("0.025265"), "usage"),
    "openrouter-read": Billing(Decimal("0.002196"), "usage"),
    "openrouter-claude-write": Billing(Decimal("0.01355025"), "usage"),
    "openrouter-claude-read-and-write": Billing(Decimal("0.00219855"), "usage"),
    "openrouter-gemini": Billing(Decimal("0.000151"), "usage"),
    "openrouter-reasoning": Billing(Decimal("0.00034225"), "usage"),
    "openrouter-own-key": Billing(Decimal("0.0003253"), "market"),
    "openrouter-file": Billing(Decimal("0.00216775"), "usage"),
}


# What LiteLLM 1.106.0 charged, with the prices of `tests/interop/litellm/proxy.py`. In every protocol, the
# prompt has 4 new tokens, 128 from the cache and 192 that are written to it; the answer has 82.
LITELLM = {
    "input": "0.000003",
    "output": "0.000015",
    "input_cache_read": "0.0000003",
    "input_cache_write": "0.00000375",
}
# 4 x 0.000003 + 128 x 0.0000003 + 192 x 0.00000375 + 82 x 0.000015 = 0.000012 + 0.0000384 + 0.00072 + 0.00123
LITELLM_COST = Decimal("0.0020004")
LITELLM_USAGE = (324, 82, 128, 192)

# What Vercel AI Gateway charged: the response, the prices of its model, the price of the tokens and what was
# added, calculated by hand.
NANO = {"input": "0.0000001", "output": "0.0000004"}
GROK_4_5 = {"input": "0.000002", "output": "0.000006", "input_cache_read": "0.0000003"}
GPT_OSS_20B = {"input": "0.00000003", "output": "0.00000014"}
VERCEL = [
    # 20 x 0.0000001 + 3 x 0.0000004 = 0.000002 + 0.0000012
    ("vercel-text", NANO, "0.0000032", None, "openai"),
    # 61 x 0.0000001 + 32 x 0.0000004 = 0.0000061 + 0.0000128
    ("vercel-tool", NANO, "0.0000189", None, "openai"),
    # 40 x 0.0000003 + 46 x 0.0000012 = 0.000012 + 0.0000552; the 42 of reasoning are part of 46
    ("vercel-reasoning", DEEPSEEK, "0.0000672", None, "baseten"),
    # 13 x 0.000001 + 5 x 0.000005 = 0.000013 + 0.000025; the team's allowlist of providers costs 0.0001
    ("vercel-surcharge", HAIKU, "0.000038", "0.0001", "anthropic"),
    # 84 x 0.000002 + 128 x 0.0000003 + 30 x 0.000006 = 0.000168 + 0.0000384 + 0.00018
    ("vercel-surcharge-and-read", GROK_4_5, "0.0003864", "0.0001", "xai"),
    # 127 x 0.00000003 + 44 x 0.00000014 = 0.00000381 + 0.00000616
    ("vercel-ai-sdk", GPT_OSS_20B, "0.00000997", None, "deepinfra"),
]


def response(protocol: str, model: str, usage: dict[str, Any]) -> bytes:
    """Return the smallest response of a protocol with this usage."""
    if protocol == "anthropic-messages":
        content = [{"type": "text", "text": "Hi"}]
        body = {"type": "message", "id": "m", "content": content, "stop_reason": "end_turn"}
    elif protocol == "openresponses":
        content = [{"type": "output_text", "text": "Hi"}]
        item = {"type": "message", "id": "i", "role": "assistant", "content": content}
        body = {"id": "r", "status": "completed", "output": [item]}
    else:
        message = {"role": "assistant", "content": "Hi"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "c", "object": "chat.completion", "choices": [choice]}
    return json.dumps({**body, "model": model, "usage": usage}).encode()


def finish(name: str) -> Finished:
    block = BLOCKS[name]
    decoder = decoder_for(block["protocol"])
    events = decoder.feed(response(block["protocol"], block["model"], block["usage"])) + decoder.close()
    [finished] = [event for event in events if isinstance(event, Finished)]
    return finished


def prices_of(model: str, pricing: dict[str, Any]) -> Prices:
    listed = read_model({"id": model, "pricing": pricing})
    assert listed is not None
    assert listed.prices is not None
    return listed.prices


def test_every_recorded_block_has_a_cost() -> None:
    assert [name for name, _, _ in COSTS] == list(BLOCKS)
    assert len({name.partition("-")[0] for name in BLOCKS}) >= 5


@pytest.mark.parametrize(("name", "pricing", "cost"), COSTS, ids=[name for name, _, _ in COSTS])
def test_recorded_usage_costs_what_was_calculated_by_hand(
    name: str, pricing: dict[str, Any], cost: str
) -> None:
    finished = finish(name)
    assert finished.usage is not None
    assert prices_of(BLOCKS[name]["model"], pricing).cost(finished.usage) == Decimal(cost)


@pytest.mark.parametrize("name", BLOCKS)
def test_what_openrouter_charged_is_read_from_its_usage(name: str) -> None:
    assert finish(name).billing == BILLS.get(name)


@pytest.mark.parametrize(
    ("folder", "name", "source"),
    [
        ("chat_completions", "litellm.priced", "header"),
        ("chat_completions", "litellm.priced-stream", "usage"),
        ("anthropic_messages", "litellm.priced-nostream", "header"),
        ("anthropic_messages", "litellm.priced-stream", "usage"),
        ("openresponses", "litellm.priced-nostream", "header"),
        ("openresponses", "litellm.priced-stream", "usage"),
    ],
)
def test_what_litellm_charged_is_read_from_its_responses(folder: str, name: str, source: str) -> None:
    recording = recordings_in(folder)[name]
    decoder = decoder_for(folder.replace("_", "-"), recording.status, recording.headers)
    events = decoder.feed(recording.body) + decoder.close()
    [finished] = [event for event in events if isinstance(event, Finished)]
    bills = (read_billing_headers(recording.headers), finished.billing)
    [billing] = [bill for bill in bills if bill is not None]
    assert (billing.cost, billing.source) == (LITELLM_COST, source)
    usage = finished.usage
    assert usage is not None
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
    assert counts == LITELLM_USAGE
    assert prices_of("bridge-priced", LITELLM).cost(usage) == LITELLM_COST


def vercel_stream(name: str) -> bytes:
    """Return the last events of a recorded stream, with the metadata in the place where it was sent."""
    record = VERCEL_RESPONSES[name]
    usage, metadata = record["usage"], {"gateway": record["gateway"]}
    head = {"id": record["gateway"].get("generationId"), "model": record["model"]}
    match record["protocol"]:
        case "chat-completions":
            chunk = {**head, "object": "chat.completion.chunk"}
            text = {"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}
            last = {"index": 0, "delta": {"provider_metadata": metadata}, "finish_reason": "stop"}
            events = [{**chunk, "choices": [text]}, {**chunk, "choices": [last], "usage": usage}]
        case "anthropic-messages":
            zero = {"input_tokens": 0, "output_tokens": 0}
            message = {**head, "type": "message", "role": "assistant", "content": [], "usage": zero}
            end = {"stop_reason": "end_turn", "stop_sequence": None}
            events = [
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": end, "usage": usage, "provider_metadata": metadata},
                {"type": "message_stop"},
            ]
        case _:
            reason = {"unified": "stop", "raw": "stop"}
            events = [
                {"type": "text-start", "id": "t"},
                {"type": "text-delta", "id": "t", "delta": "Hi"},
                {"type": "text-end", "id": "t"},
                {"type": "finish", "finishReason": reason, "usage": usage, "providerMetadata": metadata},
            ]
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


@pytest.mark.parametrize(("name", "pricing", "cost", "surcharge", "provider"), VERCEL)
def test_what_vercel_charged_is_read_from_its_responses(
    name: str, pricing: dict[str, Any], cost: str, surcharge: str | None, provider: str
) -> None:
    record = VERCEL_RESPONSES[name]
    decoder = decoder_for(record["protocol"])
    events = decoder.feed(vercel_stream(name)) + decoder.close()
    [finished] = [event for event in events if isinstance(event, Finished)]
    added = None if surcharge is None else Decimal(surcharge)
    billed = Decimal(cost) + (added or 0)
    generation_id = record["gateway"].get("generationId")
    assert finished.billing == Billing(billed, "gateway", provider, generation_id, added)
    assert finished.usage is not None
    prices = prices_of(record["model"], pricing)
    assert prices.cost(finished.usage) == Decimal(cost)
    sentence = explain_difference(billed, prices, finished.usage, provider, finished.billing.surcharge)
    expected = None if added is None else "The gateway added $0.0001 for a feature of the account."
    assert sentence == expected


def test_every_recorded_bill_of_vercel_is_tested() -> None:
    assert [name for name, *_ in VERCEL] == list(VERCEL_RESPONSES)


def test_writes_that_last_an_hour_cost_twice_the_input() -> None:
    """The shape that Anthropic documents; there is no recording with a lifetime of an hour."""
    usage = Usage(3_100, 10, cached_tokens=0, cache_write_tokens=3_000, long_cache_write_tokens=2_000)
    # 100 x 0.000003 + 1000 x 0.00000375 + 2000 x 0.000006 + 10 x 0.000015
    # = 0.0003 + 0.00375 + 0.012 + 0.00015
    assert prices_of("anthropic/claude-sonnet-4.5", SONNET).cost(usage) == Decimal("0.0162")


def test_a_long_prompt_is_charged_at_the_prices_of_its_tier() -> None:
    """The list format of Vercel AI Gateway."""
    prices = prices_of(
        "openai/gpt-5.6-luna",
        {
            "input": "0.000001",
            "output": "0.000006",
            "input_cache_read": "0.0000001",
            "input_tiers": [{"cost": "0.000001", "max": 272_000}, {"cost": "0.000002", "min": 272_000}],
            "output_tiers": [{"cost": "0.000006", "max": 272_000}, {"cost": "0.000009", "min": 272_000}],
            "input_cache_read_tiers": [
                {"cost": "0.0000001", "max": 272_000},
                {"cost": "0.0000002", "min": 272_000},
            ],
        },
    )
    # 171999 x 0.000001 + 100000 x 0.0000001 + 1000 x 0.000006 = 0.171999 + 0.01 + 0.006
    assert prices.cost(Usage(271_999, 1_000, cached_tokens=100_000)) == Decimal("0.187999")
    # 200000 x 0.000002 + 100000 x 0.0000002 + 1000 x 0.000009 = 0.4 + 0.02 + 0.009
    assert prices.cost(Usage(300_000, 1_000, cached_tokens=100_000)) == Decimal("0.429")


def test_openrouter_lists_other_prices_for_long_prompts_as_overrides() -> None:
    prices = prices_of(
        "google/gemini-3-pro",
        {
            "prompt": "0.000002",
            "completion": "0.000012",
            "overrides": [
                {"min_prompt_tokens": 200_000, "prompt": "0.000004", "completion": "0.000018"},
                {"utc_start": 9, "min_prompt_tokens": 1, "prompt": "9"},  # by the time of day
            ],
        },
    )
    assert prices.tiers == (PriceTier(200_000, Decimal("0.000004"), Decimal("0.000018")),)


def test_the_price_of_an_hour_grows_with_the_tier() -> None:
    prices = Prices(
        input=Decimal("0.000003"),
        output=Decimal("0.000015"),
        cache_write=Decimal("0.00000375"),
        cache_write_long=Decimal("0.000006"),
        tiers=(PriceTier(200_000, cache_write=Decimal("0.0000075")),),
    )
    assert prices.for_prompt(200_000).cache_write_long == Decimal("0.000012")


def test_images_and_searches_are_added() -> None:
    prices = Prices(
        Decimal("0.000001"), Decimal("0.000002"), image=Decimal("0.04"), web_search=Decimal("0.01")
    )
    # 1000 x 0.000001 + 10 x 0.000002 + 2 x 0.04 + 3 x 0.01 = 0.001 + 0.00002 + 0.08 + 0.03
    assert prices.cost(Usage(1_000, 10, images=2, web_searches=3)) == Decimal("0.11102")


def test_the_price_of_generated_images_is_read_and_that_of_sent_images_is_not() -> None:
    assert prices_of("a/b", {"input": "0", "output": "0", "image": "0.039"}).image == Decimal("0.039")
    assert prices_of("a/b", {"prompt": "0", "completion": "0", "image": "0.001"}).image is None


def test_the_price_of_a_thousand_searches_is_recognized() -> None:
    prices = prices_of("a/b", {"input": "0", "output": "0", "web_search": "10"})
    assert prices.web_search == Decimal("0.01")


@pytest.mark.parametrize(
    ("prices", "usage"),
    [
        (Prices(input=Decimal(1)), Usage(1, 1)),
        (Prices(output=Decimal(1)), Usage(1, 1)),
        (Prices(Decimal(1), Decimal(1)), Usage(1, None)),
        (Prices(Decimal(1), Decimal(1)), Usage(None, 1)),
    ],
)
def test_an_unknown_cost_is_none_and_not_zero(prices: Prices, usage: Usage) -> None:
    assert prices.cost(usage) is None


def test_a_free_model_costs_zero() -> None:
    assert prices_of("a/free", {"prompt": "0", "completion": "0"}).cost(Usage(5, 5)) == 0


SONNET_PRICES = prices_of("anthropic/claude-sonnet-4.5", SONNET)
# 1000 x 0.000003 + 8000 x 0.0000003 + 1000 x 0.00000375 + 100 x 0.000015 + 0.01
# = 0.003 + 0.0024 + 0.00375 + 0.0015 + 0.01 = 0.02065
TURN = Usage(10_000, 100, 10_100, 8_000, 60, 1_000, web_searches=1)


@pytest.mark.parametrize(
    ("billed", "sentence"),
    [
        ("0.02065", None),
        ("0.0208", None),  # 0.7 % more
        ("0", "The request was not charged."),
        ("0.0169", "Cache writes were not charged."),  # less 0.00375
        ("0.0199", "Cache writes were charged as other input."),  # 0.003 instead of 0.00375
        ("0.04225", "Cached input was charged as other input."),  # 0.024 instead of 0.0024
        ("0.02155", "Reasoning was charged in addition to the output."),  # 60 x 0.000015 more
        ("0.01065", "Web searches and images were not charged."),
        ("0.5", "The provider bedrock may charge other prices than the model list says."),
    ],
)
def test_a_difference_of_more_than_one_percent_is_explained(billed: str, sentence: str | None) -> None:
    assert SONNET_PRICES.cost(TURN) == Decimal("0.02065")
    assert explain_difference(Decimal(billed), SONNET_PRICES, TURN, "bedrock") == sentence


def test_a_tier_that_was_not_applied_explains_a_difference() -> None:
    tiers = (PriceTier(200_000, Decimal("0.000006"), Decimal("0.00003")),)
    prices = Prices(Decimal("0.000003"), Decimal("0.000015"), tiers=tiers)
    # 300000 x 0.000003 + 100 x 0.000015 = 0.9 + 0.0015
    sentence = explain_difference(Decimal("0.9015"), prices, Usage(300_000, 100))
    assert sentence == "The prices for long prompts were not applied."


def test_costs_of_attempts_are_added_and_unknown_stays_unknown() -> None:
    first = Cost(Decimal("0.1"), None, Decimal("0.1"), "list")
    second = Cost(Decimal("0.2"), Decimal("0.3"), Decimal("0.3"), "gateway", "why")
    assert first + second == Cost(Decimal("0.3"), Decimal("0.3"), Decimal("0.4"), "gateway", "why")
    assert Cost() + Cost() == Cost()
