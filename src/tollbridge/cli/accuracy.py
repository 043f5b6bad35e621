"""`tollbridge accuracy`: how close token estimates were to the counts that gateways reported."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import msgspec

from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import Styles, format_count, one_line, terminal_width, wrap_line
from tollbridge.config.paths import database_file
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.tokens.records import Accuracy, ErrorSummary

_BARS, _REFUSED = "▁▂▃▄▅▆▇█", "x"
# Errors of this size or more have the highest bar.
_HIGHEST_ERROR = 0.10
_LABEL_WIDTH = 16


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Output JSON Lines, one object per model.")
def accuracy(as_json: bool) -> None:
    """Compare token estimates with the counts that gateways reported, for each model.

    Errors are relative to the reported token count. "uncalibrated" shows what the errors would be without
    learning from earlier responses. Each bar is one request, from no error to 10 % or more.

    First requests of conversations, later ones, and requests that were counted before are also shown apart.
    Reports that cannot be the size of the prompt are refused: they are counted, and not learned from.
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
        errors = ErrorSummary(model.requests, model.median, model.p95, model.worst_under)
        _show_line("error", _describe(errors))
        kinds = {"first": model.openings, "later": model.later, "repeated": model.repeats}
        for label, summary in kinds.items():
            if summary.requests:
                _show_line(label, f"{format_count(summary.requests, 'request')}, {_describe(summary)}")
        if model.refused:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in model.refused.items())
            _show_line("refused", f"{format_count(sum(model.refused.values()), 'report')}: {reasons}")
        _show_line("uncalibrated", f"median {model.plain_median:.1%}, 95th percentile {model.plain_p95:.1%}")
        latest = -max(8, terminal_width(sys.stdout) - _LABEL_WIDTH)
        _show_line("recent", plot(model.recent[latest:], model.recent_kinds[latest:]))
    paint = Styles(sys.stdout)
    scale = f"{_BARS[0]} no error, {_BARS[-1]} {_HIGHEST_ERROR:.0%} or more, {_REFUSED} refused"
    legend = f"Each bar is one request: {scale}."
    click.echo(f"{paint.dim}{wrap_line(legend, sys.stdout)}{paint.plain}")


def _show_line(label: str, text: str) -> None:
    click.echo(f"  {label:<{_LABEL_WIDTH - 2}}{wrap_line(text, sys.stdout, _LABEL_WIDTH)}")


def _describe(errors: ErrorSummary) -> str:
    worst = f"worst undercount {abs(errors.worst_under):.1%}"
    return f"median {errors.median:.1%}, 95th percentile {errors.p95:.1%}, {worst}"


def plot(errors: Sequence[float], kinds: Sequence[str]) -> str:
    """Return one bar per error, oldest first. The lowest bar is no error; refused reports have a cross."""
    top = len(_BARS) - 1
    return "".join(
        _REFUSED if kind == "refused" else _BARS[min(top, -int(-abs(error) / _HIGHEST_ERROR * top // 1))]
        for error, kind in zip(errors, kinds, strict=True)
    )
