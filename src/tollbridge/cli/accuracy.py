"""`tollbridge accuracy`: how close token estimates were to the counts that gateways reported."""

from __future__ import annotations

import sys

import click
import msgspec

from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import Styles, format_count, one_line, terminal_width, wrap_line
from tollbridge.config.paths import database_file
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.tokens.records import Accuracy

_BARS = "▁▂▃▄▅▆▇█"
# Errors of this size or more have the highest bar.
_HIGHEST_ERROR = 0.10
_LABEL_WIDTH = 16


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Output JSON Lines, one object per model.")
def accuracy(as_json: bool) -> None:
    """Compare token estimates with the counts that gateways reported, for each model.

    Errors are relative to the reported token count. "uncalibrated" shows what the errors would be without
    learning from earlier responses. Each bar is one request, from no error to 10 % or more.
    """
    estimator = HybridTokenEstimator(database_file())
    try:
        models = estimator.accuracy()
    finally:
        estimator.close()
    if as_json:
        for model in models:
            click.echo(to_json(msgspec.to_builtins(model)))
    elif models:
        _show(models)
    else:
        click.echo("No data yet. Send a request first, for example with `tollbridge ask`.", err=True)


def _show(models: list[Accuracy]) -> None:
    for model in models:
        click.echo(
            f"{one_line(model.model)}: {format_count(model.requests, 'request')}, {model.exact:,} exact"
        )
        worst = f"worst undercount {abs(model.worst_under):.1%}"
        _show_line("error", f"median {model.median:.1%}, 95th percentile {model.p95:.1%}, {worst}")
        _show_line("uncalibrated", f"median {model.plain_median:.1%}, 95th percentile {model.plain_p95:.1%}")
        _show_line("recent", plot(model.recent[-max(8, terminal_width(sys.stdout) - _LABEL_WIDTH) :]))
    paint = Styles(sys.stdout)
    legend = f"Each bar is one request: {_BARS[0]} no error, {_BARS[-1]} {_HIGHEST_ERROR:.0%} or more."
    click.echo(f"{paint.dim}{wrap_line(legend, sys.stdout)}{paint.plain}")


def _show_line(label: str, text: str) -> None:
    click.echo(f"  {label:<{_LABEL_WIDTH - 2}}{wrap_line(text, sys.stdout, _LABEL_WIDTH)}")


def plot(errors: tuple[float, ...]) -> str:
    """Return one bar per error, oldest first. The lowest bar is no error."""
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, -int(-abs(error) / _HIGHEST_ERROR * top // 1))] for error in errors)
