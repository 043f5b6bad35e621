"""`tollbridge models`: list the models of a gateway."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import click
import msgspec

from tollbridge.catalog.models import filter_models, is_favourite
from tollbridge.cli.connection import connect
from tollbridge.cli.options import ConnectionOptions, connection_options, json_option
from tollbridge.cli.output import Column, decimal_fields, format_cell, print_json_lines, show_table, to_json
from tollbridge.cli.terminal import format_count, one_line
from tollbridge.config.schema import Settings
from tollbridge.types.models import Model, Prices

_MILLION = 1_000_000
_PRICES = ("input", "output", "cache_read", "cache_write")
# Few lists have these. They are left out if they are unknown.
_OTHER_PRICES = ("cache_write_long", "reasoning", "image", "web_search")
# The fields of a model that are shown unchanged in JSON.
_FIELDS = ("id", "name", "description", "owner", "type", "created", "context_window", "max_output_tokens")
# The gateways' names for capabilities.
_TAGS = {"tools": "tool-use", "images": "vision", "files": "file-input", "reasoning": "reasoning"}
COLUMNS = (
    Column("model", min_width=28),
    Column("context", right=True),
    Column("output", right=True, drop_order=1),
    Column("in $/M", right=True),
    Column("out $/M", right=True),
    Column("price", drop_order=3),
    Column("capabilities", drop_order=2, min_width=24, style="dim"),
)


class Filter(msgspec.Struct, frozen=True):
    """Which models to show. `max_price` is in US dollars per million input or output tokens."""

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    max_price: Decimal | None = None
    all_types: bool = False

    def matches(self, model: Model) -> bool:
        text = f"{model.id} {model.name or ''} {model.description or ''}".lower()
        prices = model.prices or Prices()
        # A model with unknown prices is not cheap enough.
        price = None if prices.input is None or prices.output is None else max(prices.input, prices.output)
        return (
            (self.all_types or model.is_chat_model)
            and all(word.lower() in text for word in self.words)
            and all(tag in model.tags for tag in self.tags)
            and (self.max_price is None or (price is not None and price * _MILLION <= self.max_price))
        )

    def describe(self) -> str:
        """Return the conditions as they were given: ` --search "word" --tag "vision"`."""
        text = "".join(f" --search {to_json(one_line(word))}" for word in self.words)
        text += "".join(f" --tag {to_json(one_line(tag))}" for tag in self.tags)
        return text if self.max_price is None else f"{text} --max-price {self.max_price:f}"


def _read_dollars(text: str) -> Decimal:
    try:
        dollars = Decimal(text.lstrip("$"))
    except ArithmeticError:
        dollars = Decimal("NaN")
    if not dollars.is_finite() or dollars < 0:
        raise click.BadParameter(f"{text!r} is not a valid price.")
    return dollars


@click.command()
@connection_options
@click.option(
    "--search",
    "words",
    multiple=True,
    metavar="WORD",
    help="Filter by text in ID, name or description (repeatable).",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Filter by tag (repeatable).")
@click.option(
    "--max-price", type=_read_dollars, metavar="USD", help="Maximum price in USD per million tokens."
)
@click.option("--all", "all_types", is_flag=True, help="Include non-chat models.")
@click.option("--refresh", is_flag=True, help="Ignore the cache and fetch the list again.")
@json_option("Output JSON Lines, one object per model.")
def models(
    where: ConnectionOptions,
    words: tuple[str, ...],
    tags: tuple[str, ...],
    max_price: Decimal | None,
    all_types: bool,
    refresh: bool,
    as_json: bool,
) -> None:
    """List a gateway's models (filtered by your settings, favourites first)."""
    allowed, hidden, settings = asyncio.run(_list(where, refresh))
    wanted = Filter(words, tags, max_price, all_types)
    shown = [model for model in allowed if wanted.matches(model)]
    if as_json:
        print_json_lines(_as_json(model, settings) for model in shown)
    elif shown:
        _show(shown, settings)
    else:
        click.echo(_explain_empty(allowed, hidden, wanted), err=True)


def _explain_empty(allowed: list[Model], hidden: int, wanted: Filter) -> str:
    """Return why no model is shown."""
    if hidden and not allowed:
        advice = "Run `tollbridge config` to see them."
        return f"All {hidden} models are excluded by your `allow` and `deny` settings. {advice}"
    if not allowed:
        return "The gateway lists no models."
    considered = sum(wanted.all_types or model.is_chat_model for model in allowed)
    types = "" if wanted.all_types else " Use --all to include other types."
    if not considered:
        return f"The gateway lists no chat models.{types}"
    return f"None of {format_count(considered, 'model')} matches{wanted.describe()}.{types}"


async def _list(where: ConnectionOptions, refresh: bool) -> tuple[list[Model], int, Settings]:
    """Return the models that the settings allow, how many they exclude, and the settings."""
    async with connect(where, start_local=False) as session:
        listing = await session.list_models(refresh=refresh)
        if listing.error is not None:
            click.echo(f"Showing a cached list; refresh failed: {one_line(listing.error.message)}", err=True)
        allowed = filter_models(listing.models, session.settings)
        return allowed, len(listing.models) - len(allowed), session.settings


def _as_json(model: Model, settings: Settings) -> dict[str, Any]:
    prices = model.prices
    return {
        **{name: getattr(model, name) for name in _FIELDS},
        "tags": sorted(model.tags),
        "supported_parameters": sorted(model.parameters),
        "prices": None if prices is None else _encode_prices(prices),
        "price_category": None if prices is None else prices.category,
        "identity": msgspec.to_builtins(model.identity),
        "capabilities": msgspec.to_builtins(model.capabilities),
        "favourite": is_favourite(model.id, settings),
    }


def _encode_prices(prices: Prices) -> dict[str, Any]:
    others = (name for name in _OTHER_PRICES if getattr(prices, name) is not None)
    fields: dict[str, Any] = decimal_fields(prices, *_PRICES, *others)
    if prices.tiers:
        fields["tiers"] = [
            {"min_input": tier.min_input, **decimal_fields(tier, *_PRICES)} for tier in prices.tiers
        ]
    return fields


def _show(models: list[Model], settings: Settings) -> None:
    rows: list[tuple[str, ...]] = []
    for model in models:
        prices = model.prices or Prices()
        kind = [] if model.is_chat_model else [model.type or ""]
        # The capabilities in the gateways' terms, with the corrections of the settings.
        added = {_TAGS[name] for name, can in model.overrides.items() if can}
        removed = {_TAGS[name] for name, can in model.overrides.items() if not can}
        star = " ★" if is_favourite(model.id, settings) else ""
        cells = (
            model.id + star,
            format_cell(model.context_window),
            format_cell(model.max_output_tokens),
            _price(prices.input),
            _price(prices.output),
            prices.category or "",
            ", ".join([*kind, *sorted(model.tags - removed | added)]),
        )
        rows.append(cells)
    show_table(COLUMNS, rows)


def _price(price: Decimal | None) -> str:
    return "" if price is None else f"{price * _MILLION:,.2f}"
