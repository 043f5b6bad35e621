from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from tollbridge.catalog import models
from tollbridge.catalog.models import PriceLookup
from tollbridge.types.events import Usage
from tollbridge.types.models import PriceTier

ANTHROPIC = "https://api.anthropic.com/v1"
ELSEWHERE = "https://gateway.example/v1"


@pytest.fixture(scope="module")
def lookup() -> PriceLookup:
    lookup = PriceLookup()
    thread = lookup.load()
    assert thread is not None
    thread.join(60)
    return lookup


@pytest.mark.parametrize(
    ("model", "url"),
    [
        ("claude-sonnet-4-5", ANTHROPIC),
        ("anthropic/claude-sonnet-4.5", ELSEWHERE),
        ("claude-sonnet-4-5-20250929", ELSEWHERE),
    ],
)
def test_a_model_is_found_at_its_gateway_by_its_creator_or_by_its_name(
    lookup: PriceLookup, model: str, url: str
) -> None:
    """Anthropic: $3 in, $15 out, reads $0.30, writes $3.75 and $6, $10 per 1,000 searches."""
    prices = lookup.find(model, url)
    assert prices is not None
    assert (prices.input, prices.output) == (Decimal("0.000003"), Decimal("0.000015"))
    assert (prices.cache_read, prices.cache_write) == (Decimal("0.0000003"), Decimal("0.00000375"))
    assert (prices.cache_write_long, prices.web_search) == (Decimal("0.000006"), Decimal("0.01"))
    assert prices.source == "genai-prices"
    # 100 x 0.000003 + 10 x 0.000015
    assert prices.cost(Usage(100, 10)) == Decimal("0.00045")


def test_tiers_begin_above_their_start(lookup: PriceLookup) -> None:
    """Google's published prices of Gemini 2.5 Pro: $1.25 and $10 up to 200,000 tokens, then $2.50 and $15."""
    prices = lookup.find("google/gemini-2.5-pro", ELSEWHERE)
    assert prices is not None
    [tier] = prices.tiers
    assert (tier.min_input, tier.input, tier.output) == (200_001, Decimal("0.0000025"), Decimal("0.000015"))
    assert isinstance(tier, PriceTier)


@pytest.mark.parametrize(
    ("model", "url"),
    [
        ("nobody/has-this-9", ELSEWHERE),
        ("", ELSEWHERE),
        ("claude-sonnet-4-5", "http://127.0.0.1:8080/v1"),  # a model of this machine
    ],
)
def test_an_unknown_price_is_unknown(lookup: PriceLookup, model: str, url: str) -> None:
    assert lookup.find(model, url) is None


def test_nothing_waits_for_the_package() -> None:
    lookup = PriceLookup()
    lookup._is_tried = True  # as if the thread had just been started
    assert lookup.find("claude-sonnet-4-5", ANTHROPIC) is None


def test_without_the_package_prices_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_PACKAGE", "no_such_package_of_prices")
    lookup = PriceLookup()
    assert lookup.find("claude-sonnet-4-5", ANTHROPIC) is None
    assert lookup.load() is None


@pytest.mark.io
def test_importing_the_engine_does_not_import_the_package() -> None:
    code = "import sys, tollbridge.engine; print('genai_prices' in sys.modules, 'pydantic' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]
