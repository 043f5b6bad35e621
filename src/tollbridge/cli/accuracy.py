"""`tollbridge accuracy`: how right the estimates were."""

from __future__ import annotations

import click
import msgspec

from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import one_line
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.settings.places import database_file
from tollbridge.tokens import Accuracy

_BARS = "▁▂▃▄▅▆▇█"
# An error of so much, or more, is the highest bar.
_HIGHEST = 0.10


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a model, one a line.")
def accuracy(as_json: bool) -> None:
    """Show how far estimates were from what gateways reported, model by model."""
    estimator = HybridTokenEstimator(database_file())
    try:
        measured = estimator.accuracy()
    finally:
        estimator.close()
    if as_json:
        for one in measured:
            click.echo(to_json(msgspec.to_builtins(one)))
    elif measured:
        _show(measured)
    else:
        click.echo("Nothing was measured yet: ask a model something first.", err=True)


def _show(measured: list[Accuracy]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("model", overflow="fold")
    for name in ("requests", "exact", "median", "95th", "worst under", "unlearned median", "95th"):
        table.add_column(name, justify="right")
    table.add_column("latest errors", no_wrap=True)
    for one in measured:
        shares = (one.median, one.p95, one.worst_under, one.plain_median, one.plain_p95)
        numbers = [f"{one.requests:,}", f"{one.exact:,}", *(f"{share:.1%}" for share in shares)]
        table.add_row(Text(one_line(one.model)), *numbers, plot(one.recent[-30:]))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Errors as shares of the tokens reported; unlearned: had nothing been learned.", style="dim"
    )


def plot(errors: tuple[float, ...]) -> str:
    """One bar an error, oldest first; the lowest is none."""
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, -int(-abs(error) / _HIGHEST * top // 1))] for error in errors)
