"""`tollbridge models`: what a gateway offers."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import click
import msgspec

from tollbridge.catalog.models import filter_models, is_favourite
from tollbridge.cli.connection import connect
from tollbridge.cli.options import Command, ConnectionOptions, connection_options
from tollbridge.cli.summary import to_json
from tollbridge.cli.tables import Column, Row, show_table
from tollbridge.cli.terminal import one_line
from tollbridge.config.schema import Settings
from tollbridge.types.models import Model, Prices

_MILLION = 1_000_000
_PRICES = Prices.__struct_fields__
# How gateways call what a model can do.
_TAGS = {"tools": "tool-use", "images": "vision", "files": "file-input", "reasoning": "reasoning"}
COLUMNS = (
    Column("model", least=28),
    Column("window", right=True),
    Column("output", right=True, leaves=1),
    Column("in $/M", right=True),
    Column("out $/M", right=True),
    Column("price", leaves=3),
    Column("can", leaves=2, least=24, style="dim"),
)


class Filter(msgspec.Struct, frozen=True):
    """Which models to show. `most` is US dollars for a million tokens, in and out."""

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    most: Decimal | None = None
    every_type: bool = False

    def takes(self, model: Model) -> bool:
        text = f"{model.id} {model.name or ''} {model.description or ''}".lower()
        return (
            (self.every_type or model.is_chat_model)
            and all(word.lower() in text for word in self.words)
            and all(tag in model.tags for tag in self.tags)
            and (self.most is None or _costs_at_most(model.prices, self.most))
        )


def _costs_at_most(prices: Prices | None, most: Decimal) -> bool:
    """A price that is not known is not under any bound."""
    if prices is None or prices.input is None or prices.output is None:
        return False
    return max(prices.input, prices.output) * _MILLION <= most


class _Dollars(click.ParamType[Decimal]):
    name = "dollars"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            dollars = Decimal(str(value).lstrip("$"))
        except ArithmeticError:
            dollars = Decimal("NaN")
        if not dollars.is_finite() or dollars < 0:
            self.fail(f"{value!r} is not an amount of dollars.", param, ctx)
        return dollars


def filter_options(command: Command) -> Command:
    for option in (
        click.option("--all", "every_type", is_flag=True, help="Also models that one cannot chat with."),
        click.option(
            "--max-price", type=_Dollars(), metavar="USD", help="At most so many dollars a million tokens."
        ),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only models with this tag."),
        click.option("--search", "words", multiple=True, metavar="WORD", help="Only models with this word."),
    ):
        command = option(command)
    return command


@click.command()
@connection_options
@filter_options
@click.option("--refresh", is_flag=True, help="Ask the gateway, however fresh the list is.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a model, one a line.")
def models(
    where: ConnectionOptions,
    words: tuple[str, ...],
    tags: tuple[str, ...],
    max_price: Decimal | None,
    every_type: bool,
    refresh: bool,
    as_json: bool,
) -> None:
    """List the models of a gateway: those your settings allow, favourites first."""
    listed, hidden, settings = asyncio.run(_listed(where, refresh))
    found = [model for model in listed if Filter(words, tags, max_price, every_type).takes(model)]
    if as_json:
        for model in found:
            click.echo(to_json(_as_json(model, settings)))
    elif found:
        _show(found, settings)
    else:
        click.echo(_nothing(len(listed), hidden, every_type), err=True)


def _nothing(listed: int, hidden: int, every_type: bool) -> str:
    """Why nothing is shown."""
    if listed:
        types = "" if every_type else "; --all shows every type"
        return f"There are no such models. The gateway has {listed}{types}."
    if hidden:
        told = f"Your settings hide all {hidden} models of the gateway"
        return f"{told}: `tollbridge config` shows what `allow` and `deny` say."
    return "The gateway lists no models."


async def _listed(where: ConnectionOptions, refresh: bool) -> tuple[list[Model], int, Settings]:
    """The models the settings allow, and how many they hide. That a list is old is told, and hides none."""
    async with connect(where) as connection:
        listing = await connection.list_models(refresh=refresh)
        if listing.error is not None:
            click.echo(f"This is an older list: {one_line(listing.error.message)}", err=True)
        chosen = filter_models(listing.models, connection.settings)
        return chosen, len(listing.models) - len(chosen), connection.settings


def _as_json(model: Model, settings: Settings) -> dict[str, Any]:
    prices = model.prices
    return {
        "id": model.id,
        "name": model.name,
        "description": model.description,
        "owner": model.owner,
        "type": model.type,
        "created": model.created,
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
        "tags": sorted(model.tags),
        "supported_parameters": sorted(model.parameters),
        "prices": None if prices is None else {name: _text(getattr(prices, name)) for name in _PRICES},
        "price_category": None if prices is None else prices.category,
        "identity": msgspec.to_builtins(model.identity),
        "capabilities": msgspec.to_builtins(model.capabilities),
        "favourite": is_favourite(model.id, settings),
    }


def _text(price: Decimal | None) -> str | None:
    """As gateways write prices: decimal, never with an exponent."""
    return None if price is None else f"{price:f}"


def _show(listed: list[Model], settings: Settings) -> None:
    rows: list[Row] = []
    for model in listed:
        prices = model.prices or Prices()
        kind = [] if model.is_chat_model else [model.type or ""]
        star = " ★" if is_favourite(model.id, settings) else ""
        cells = (
            model.id + star,
            _count(model.context_window),
            _count(model.max_output_tokens),
            _price(prices.input),
            _price(prices.output),
            prices.category or "",
            ", ".join([*kind, *_can(model)]),
        )
        rows.append(Row(cells))
    show_table(COLUMNS, rows)


def _can(model: Model) -> list[str]:
    """What a model can do, in the gateway's words, as corrected by the settings."""
    said = {_TAGS[name] for name, can in model.told.items() if can}
    denied = {_TAGS[name] for name, can in model.told.items() if not can}
    return sorted(model.tags - denied | said)


def _count(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}"


def _price(price: Decimal | None) -> str:
    return "" if price is None else f"{price * _MILLION:,.2f}"
