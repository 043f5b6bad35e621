"""`tollbridge models`: what a gateway offers."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import click

from tollbridge.cli.connection import connect
from tollbridge.cli.options import Where, where_options
from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import one_line
from tollbridge.core.models import Model, Prices

_MILLION = 1_000_000
_PRICES = Prices.__struct_fields__


@click.command()
@where_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a model, one a line.")
def models(where: Where, as_json: bool) -> None:
    """List the models of a gateway."""
    listed = asyncio.run(_listed(where))
    if as_json:
        for model in listed:
            click.echo(to_json(_as_json(model)))
    elif listed:
        _show(listed)
    else:
        click.echo("The gateway lists no models.", err=True)


async def _listed(where: Where) -> list[Model]:
    async with connect(where) as connection:
        return await connection.client.models()


def _as_json(model: Model) -> dict[str, Any]:
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
        "prices": None if prices is None else {name: _text(getattr(prices, name)) for name in _PRICES},
    }


def _text(price: Decimal | None) -> str | None:
    """As gateways write prices: decimal, never with an exponent."""
    return None if price is None else f"{price:f}"


def _show(listed: list[Model]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("model", no_wrap=True, overflow="fold")
    for name in ("window", "output", "in $/M", "out $/M"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("can", overflow="fold")
    for model in listed:
        prices = model.prices
        costs = (None, None) if prices is None else (prices.input, prices.output)
        kind = [] if model.type in (None, "language") else [model.type or ""]
        table.add_row(
            Text(one_line(model.id)),
            _count(model.context_window),
            _count(model.max_output_tokens),
            *(_price(cost) for cost in costs),
            Text(one_line(", ".join([*kind, *sorted(model.tags)])), style="dim"),
        )
    Console(highlight=False).print(table)


def _count(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}"


def _price(price: Decimal | None) -> str:
    return "" if price is None else f"{price * _MILLION:,.2f}"
