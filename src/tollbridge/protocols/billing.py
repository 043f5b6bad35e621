"""Read what gateways say about the cost of a request: in streams, headers, and endpoints of their own.

- Vercel AI Gateway: `provider_metadata.gateway` with `cost`, `marketCost`, `gatewayCost`, `generationId`
  and the final provider; in Chat Completions also `usage.cost` and its siblings; `GET /v1/generation?id=` and
  `GET /v1/credits`.
- OpenRouter: `usage.cost`, `provider`, and a response id that is also the generation id; the same endpoints.
- LiteLLM: `usage.cost` in streams if it is configured to, and a header for responses that are not streamed.

Everything is read leniently: an invalid value counts as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import msgspec

from tollbridge.types.errors import StreamError
from tollbridge.types.events import Billing, CostSource, Usage, parse_amount, token_count
from tollbridge.types.text import Fields, read_json, read_mapping

# LiteLLM sends its header before the body, so that of a stream has no cost yet.
COST_HEADER = "x-litellm-response-cost"
GENERATION_HEADER = "x-generation-id"  # OpenRouter's
# How the ids of generations start: at Vercel AI Gateway and at OpenRouter.
_GENERATION_PREFIXES = ("gen_", "gen-")
_NAME_LIMIT = 200
# Higher costs of one request (US dollars) are errors, and so are lower powers of ten.
_COST_LIMIT, _COST_EXPONENT = 1_000_000, -40
# LiteLLM calculates with binary floating-point numbers and reports costs such as 0.00035699999999999995.
_ROUNDING = Context(prec=14)


def read_billing(
    metadata: object = None, usage: object = None, *, provider: object = None, response_id: object = None
) -> Billing | None:
    """Return what a response says about its cost, or `None` if it says nothing.

    Args:
        metadata: `provider_metadata` (`providerMetadata` in the AI SDK's protocols).
        usage: The usage object, where OpenRouter and LiteLLM put the cost.
        provider: The name of the provider, as OpenRouter sends it.
        response_id: The id of the response. It is used if it has the form of a generation id.
    """
    is_generation = isinstance(response_id, str) and response_id.startswith(_GENERATION_PREFIXES)
    if not (metadata or usage or provider or is_generation):
        return None
    gateway = read_mapping(read_mapping(metadata).get("gateway"))
    routing = read_mapping(gateway.get("routing"))
    billing = Billing(
        provider=_text(provider) or _text(routing.get("finalProvider")),
        generation_id=_text(gateway.get("generationId")) or (_text(response_id) if is_generation else None),
    )
    charged = _bill(gateway.get("cost"), gateway.get("marketCost"), gateway.get("gatewayCost"), "gateway")
    billing |= _read_usage_cost(read_mapping(usage)) | charged
    return billing if billing != Billing() else None


def _read_usage_cost(usage: Mapping[str, Any]) -> Billing:
    """Return the cost in a usage object.

    OpenRouter charges only its fee if the user's own provider key was used; the provider charges the rest.
    """
    cost = parse_cost(usage.get("cost"))
    upstream = parse_cost(read_mapping(usage.get("cost_details")).get("upstream_inference_cost"))
    if usage.get("is_byok") is True and cost is not None and upstream:
        return Billing(cost + upstream, "market")
    return _bill(usage.get("cost"), usage.get("market_cost"), usage.get("gateway_cost"), "usage")


def _bill(cost: object, market: object, total: object, source: CostSource) -> Billing:
    """Return the bill of Vercel AI Gateway, or of a gateway that reports only the cost.

    Args:
        cost: The price of the tokens. It is 0 if the gateway used another account than the user's credits,
            such as the user's own provider key. Somebody pays all the same, so the market price counts then.
        market: The price of the tokens at the provider.
        total: The cost, and what features of the account such as zero data retention cost in addition.
        source: Where the cost was reported.
    """
    price, market_price, debit = parse_cost(cost), parse_cost(market), parse_cost(total)
    surcharge = debit - (price or 0) if debit is not None and debit > (price or 0) else None
    if not price and market_price:
        return Billing(market_price + (surcharge or 0), "market", surcharge=surcharge)
    return Billing() if price is None else Billing(price + (surcharge or 0), source, surcharge=surcharge)


def read_billing_headers(headers: Mapping[str, str]) -> Billing | None:
    """Return what the headers of a response (in lower case) say about its cost, or `None`."""
    is_stream = headers.get("content-type", "").startswith("text/event-stream")
    cost = None if is_stream else parse_cost(headers.get(COST_HEADER))
    generation_id = _text(headers.get(GENERATION_HEADER))
    if cost is None and generation_id is None:
        return None
    return Billing(cost, None if cost is None else "header", generation_id=generation_id)


def parse_cost(value: object) -> Decimal | None:
    """Return a cost in US dollars, at most 14 digits; `None` if the value is not a plausible number."""
    cost = None if value is None else parse_amount(value)
    if cost is None or cost >= _COST_LIMIT:
        return None
    return _ROUNDING.plus(cost) if not cost or cost.adjusted() > _COST_EXPONENT else None


# --- Endpoints ---


class Generation(msgspec.Struct, frozen=True):
    """The gateway's record of one request: its bill, and its usage if it was counted."""

    billing: Billing
    usage: Usage | None = None


class Credits(msgspec.Struct, frozen=True):
    """The balance of an account and what it has used so far, in US dollars; `None` is unknown."""

    balance: Decimal | None = None
    used: Decimal | None = None


def read_generation(body: bytes) -> Generation:
    """Return the record of a `GET /v1/generation` response.

    Raises:
        StreamError: The body is not such a record.
    """
    data = _read_data(body, "record of the request")
    total, market = parse_cost(data.get("total_cost")), parse_cost(data.get("market_cost"))
    upstream = parse_cost(data.get("upstream_inference_cost"))
    if data.get("is_byok") is True:  # the provider charges the user directly
        market = market or ((total or 0) + upstream if upstream is not None else None)
    if not total and market:
        billing = Billing(market, "market")
    else:
        billing = Billing(total, None if total is None else "generation")
    names = Billing(provider=_text(data.get("provider_name")), generation_id=_text(data.get("id")))
    prompt, completion = (token_count(data.get(f"native_tokens_{kind}")) for kind in ("prompt", "completion"))
    usage = Usage(
        prompt,
        completion,
        None if prompt is None or completion is None else prompt + completion,
        cached_tokens=token_count(data.get("native_tokens_cached")),
        reasoning_tokens=token_count(data.get("native_tokens_reasoning")),
        cache_write_tokens=token_count(data.get("native_tokens_cache_creation")),
        web_searches=token_count(data.get("billable_web_search_calls")),
    )
    return Generation(names | billing, usage if usage.known else None)


def read_credits(body: bytes) -> Credits:
    """Return the balance of a `GET /v1/credits` response.

    Vercel AI Gateway reports `balance` and `total_used`. OpenRouter reports `total_credits` and
    `total_usage`, from which the balance follows.

    Raises:
        StreamError: The body is not such a record.
    """
    data = _read_data(body, "balance")
    balance, used = parse_cost(data.get("balance")), parse_cost(data.get("total_used"))
    total, usage = parse_cost(data.get("total_credits")), parse_cost(data.get("total_usage"))
    if balance is None and total is not None and usage is not None:
        balance, used = total - usage, usage
    if balance is None and used is None:
        raise StreamError("The gateway's answer has no balance.")
    return Credits(balance, used)


def _read_data(body: bytes, name: str) -> Mapping[str, Any]:
    try:
        answer = read_json(body)
    except ValueError:
        raise StreamError(f"The gateway's {name} is not JSON.") from None
    data = read_mapping(read_mapping(answer).get("data", answer))
    if not data:
        raise StreamError(f"The gateway's {name} is empty.")
    return data


def _text(value: object) -> str | None:
    return value[:_NAME_LIMIT] or None if isinstance(value, str) else None


def read_token_count(body: bytes) -> int:
    """Decode the response of an endpoint that counts tokens.

    Raises:
        StreamError: The body has no token count.
    """
    try:
        tokens = token_count(Fields(read_json(body)).number("input_tokens"))
    except ValueError:
        raise StreamError("The gateway returned invalid JSON.") from None
    if tokens is None:
        raise StreamError("The gateway returned no token count.")
    return tokens
