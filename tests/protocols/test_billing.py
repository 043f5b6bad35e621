from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from tests.recorded_streams import openresponses

from tollbridge.protocols.billing import (
    Credits,
    Generation,
    parse_cost,
    read_billing,
    read_billing_headers,
    read_credits,
    read_generation,
)
from tollbridge.protocols.detect import decoder_for
from tollbridge.types.errors import StreamError
from tollbridge.types.events import Billing, Finished, Usage

# The metadata of Vercel AI Gateway, as its documentation shows it.
GATEWAY = {
    "gateway": {
        "routing": {
            "originalModelId": "anthropic/claude-sonnet-4.5",
            "finalProvider": "bedrock",
            "attempts": [],
        },
        "cost": "0.0045405",
        "marketCost": "0.0045405",
        "generationId": "gen_01K8KPJ0FZA7172X6CSGNZGDWY",
    }
}
BILL = Billing(Decimal("0.0045405"), "gateway", "bedrock", "gen_01K8KPJ0FZA7172X6CSGNZGDWY")


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def responses_stream() -> bytes:
    delta = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "delta": "Hi"}
    response = {"id": "resp_1", "status": "completed", "output": [], "provider_metadata": GATEWAY}
    return sse(delta, {"type": "response.completed", "response": response})


def completion_stream() -> bytes:
    def chunk(choices: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        return {"id": "c", "object": "chat.completion.chunk", "choices": choices, **fields}

    first = {"index": 0, "delta": {"content": "Hi"}}
    last = {"index": 0, "delta": {"provider_metadata": GATEWAY}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return sse(chunk([first]), chunk([last]), chunk([], usage=usage)) + b"data: [DONE]\n\n"


def message_stream() -> bytes:
    return sse(
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 1},
            "provider_metadata": GATEWAY,
        },
        {"type": "message_stop"},
    )


def model_stream() -> bytes:
    generation = {"gateway": {"generationId": GATEWAY["gateway"]["generationId"]}}
    return sse(
        {"type": "stream-start", "warnings": []},
        {"type": "text-start", "id": "t", "providerMetadata": generation},
        {"type": "text-delta", "id": "t", "delta": "Hi"},
        {"type": "text-end", "id": "t"},
        {"type": "finish", "finishReason": "stop", "usage": {}, "providerMetadata": GATEWAY},
    )


STREAMS = {
    "openresponses": responses_stream(),
    "chat-completions": completion_stream(),
    "anthropic-messages": message_stream(),
    "ai-sdk-model": model_stream(),
}


@pytest.mark.parametrize("protocol", STREAMS)
def test_the_bill_of_vercel_is_read_in_every_protocol(protocol: str) -> None:
    decoder = decoder_for(protocol)
    events = decoder.feed(STREAMS[protocol]) + decoder.close()
    [finished] = [event for event in events if isinstance(event, Finished)]
    assert finished.billing == BILL


def test_the_generation_id_is_known_before_the_stream_is_cut() -> None:
    decoder = decoder_for("ai-sdk-model")
    decoder.feed(model_stream().partition(b"text-end")[0])
    assert decoder.billing == Billing(generation_id="gen_01K8KPJ0FZA7172X6CSGNZGDWY")
    decoder = decoder_for("openresponses")
    decoder.feed(sse({"type": "response.created", "response": {"id": "gen-17", "status": "in_progress"}}))
    assert decoder.billing == Billing(generation_id="gen-17")


def test_the_market_price_is_used_if_the_gateway_debited_nothing() -> None:
    metadata = {"gateway": {"cost": "0", "marketCost": "0.002"}}
    assert read_billing(metadata) == Billing(Decimal("0.002"), "market")
    assert read_billing({"gateway": {"cost": "0", "marketCost": "0"}}) == Billing(Decimal(0), "gateway")
    assert read_billing({"gateway": {"cost": "0"}}) == Billing(Decimal(0), "gateway")


def test_a_surcharge_is_a_part_of_the_bill() -> None:
    """`gatewayCost` is the sum of `cost` and `surchargeCost`; with one's own provider key, `cost` is 0."""
    surcharge = Decimal("0.0001")
    own_key = {"cost": "0", "marketCost": "0.002", "surchargeCost": "0.0001", "gatewayCost": "0.0001"}
    assert read_billing({"gateway": own_key}) == Billing(Decimal("0.0021"), "market", surcharge=surcharge)
    usage = {"cost": 0.00001638, "surcharge_cost": 0.0001, "gateway_cost": 0.00011638}
    assert read_billing(usage=usage) == Billing(Decimal("0.00011638"), "usage", surcharge=surcharge)
    free = {"cost": 0, "market_cost": 0.00001302, "gateway_cost": 0}
    assert read_billing(usage=free) == Billing(Decimal("0.00001302"), "market")


def test_the_bills_of_the_steps_of_a_stream_are_added() -> None:
    """A `streamText` with several steps has one bill for each; the costs are recorded ones."""
    costs = (("0.000038", "0.000138"), ("0.0003864", "0.0004864"))
    metadata = [{"gateway": {"cost": cost, "gatewayCost": total}} for cost, total in costs]
    steps = [
        {"type": "finish-step", "finishReason": "stop", "usage": {}, "providerMetadata": each}
        for each in metadata
    ]
    decoder = decoder_for("ai-sdk-full")
    lines = [{"type": "start"}, *steps, {"type": "finish", "finishReason": "stop", "totalUsage": {}}]
    decoder.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    # 0.000138 + 0.0004864 = 0.0006244
    assert decoder.billing == Billing(Decimal("0.0006244"), "gateway", surcharge=Decimal("0.0002"))


def test_the_noise_of_binary_numbers_is_removed_from_costs() -> None:
    """The first value is LiteLLM's for 0.0020004, as recorded."""
    assert parse_cost("0.0020004000000000003") == parse_cost(0.0020004000000000003) == Decimal("0.0020004")
    assert parse_cost("0.00035699999999999995") == Decimal("0.000357")
    assert parse_cost("999999.99999999") == Decimal("999999.99999999")


def test_the_header_of_litellm_counts_only_for_a_response_that_is_not_streamed() -> None:
    headers = {"x-litellm-response-cost": "0.00012", "content-type": "application/json"}
    assert read_billing_headers(headers) == Billing(Decimal("0.00012"), "header")
    assert read_billing_headers({**headers, "content-type": "text/event-stream; charset=utf-8"}) is None


def test_recorded_headers_of_litellm_without_a_price_are_no_cost() -> None:
    """Its model has no price there. LiteLLM reports 0.0 for the parts, and no cost."""
    recording = openresponses()["litellm.text-nostream"]
    assert recording.headers["x-litellm-response-cost-original"] == "0.0"
    assert read_billing_headers(recording.headers) is None


def test_openrouter_names_the_provider_and_the_generation() -> None:
    billing = read_billing(usage={"cost": 0.1}, provider="Anthropic", response_id="gen-1747-abc")
    assert billing == Billing(Decimal("0.1"), "usage", "Anthropic", "gen-1747-abc")
    assert read_billing(response_id="chatcmpl-1") is None
    assert read_billing_headers({"x-generation-id": "gen-1"}) == Billing(generation_id="gen-1")


def test_the_record_of_a_generation_has_the_bill_and_the_usage() -> None:
    """The response that Vercel AI Gateway documents."""
    data = {
        "id": "gen_1",
        "total_cost": 0.00123,
        "upstream_inference_cost": 0.00123,
        "usage": 0.00123,
        "created_at": "2026-01-01T00:00:00.000Z",
        "model": "gpt-4",
        "is_byok": False,
        "provider_name": "openai",
        "streamed": True,
        "native_tokens_prompt": 100,
        "native_tokens_completion": 50,
        "native_tokens_reasoning": 0,
        "native_tokens_cached": 20,
    }
    assert read_generation(json.dumps({"data": data}).encode()) == Generation(
        Billing(Decimal("0.00123"), "generation", "openai", "gen_1"),
        Usage(100, 50, 150, cached_tokens=20, reasoning_tokens=0),
    )
    own_key = {**data, "total_cost": 0, "is_byok": True}
    assert read_generation(json.dumps({"data": own_key}).encode()).billing.cost == Decimal("0.00123")


def test_the_balance_is_read_from_vercel_and_from_openrouter() -> None:
    assert read_credits(b'{"balance": "95.50", "total_used": "4.50"}') == Credits(
        Decimal("95.50"), Decimal("4.50")
    )
    assert read_credits(b'{"data": {"total_credits": 100.5, "total_usage": 25.75}}') == Credits(
        Decimal("74.75"), Decimal("25.75")
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": []}', b"x", b'{"balance": null}'])
def test_a_body_that_is_no_balance_is_an_error(body: bytes) -> None:
    with pytest.raises(StreamError):
        read_credits(body)


@pytest.mark.parametrize("value", [None, True, -1, "x", "NaN", "Infinity", "1e9", "9" * 50, [], {}, "1e-99"])
def test_an_implausible_cost_is_unknown(value: object) -> None:
    assert parse_cost(value) is None


@pytest.mark.parametrize(
    "metadata", [None, [], "x", {"gateway": []}, {"gateway": {"routing": 1, "cost": {}}}]
)
def test_odd_metadata_says_nothing(metadata: object) -> None:
    assert read_billing(metadata, [], provider=1, response_id=2) is None
