"""`tollbridge accuracy`: how right the estimates were."""

from __future__ import annotations

import sys

import click
import msgspec

from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import Paint, columns_of, counted, folded, one_line
from tollbridge.config.paths import database_file
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.tokens.records import Accuracy

_BARS = "▁▂▃▄▅▆▇█"
# An error of so much, or more, is the highest bar.
_HIGHEST = 0.10
_LABEL = 13


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a model, one a line.")
def accuracy(as_json: bool) -> None:
    """Show how far estimates were from what gateways reported, model by model.

    Errors are shares of the tokens reported; unlearned is what they would have been had nothing been
    learned and recorded. A bar is one request: the lowest is no error, the highest 10 % or more.
    """
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
    for one in measured:
        click.echo(f"{one_line(one.model)}: {counted(one.requests, 'request')}, {one.exact:,} exact")
        worst = f"worst under-count {one.worst_under:.1%}"
        _line("error", f"median {one.median:.1%}, 95th percentile {one.p95:.1%}, {worst}")
        _line("unlearned", f"median {one.plain_median:.1%}, 95th percentile {one.plain_p95:.1%}")
        _line("latest", plot(one.recent[-max(8, columns_of(sys.stdout) - _LABEL) :]))
    paint = Paint(sys.stdout)
    legend = f"A bar is a request: {_BARS[0]} no error, {_BARS[-1]} {_HIGHEST:.0%} or more."
    click.echo(f"{paint.dim}{folded(legend, sys.stdout)}{paint.plain}")


def _line(label: str, told: str) -> None:
    click.echo(f"  {label:<{_LABEL - 2}}{folded(told, sys.stdout, _LABEL)}")


def plot(errors: tuple[float, ...]) -> str:
    """One bar an error, oldest first; the lowest is none."""
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, -int(-abs(error) / _HIGHEST * top // 1))] for error in errors)
