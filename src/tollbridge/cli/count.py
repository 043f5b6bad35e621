"""`tollbridge count`: the tokens of a text or of a conversation, and where they come from."""

from __future__ import annotations

from typing import IO, Literal

import click
import msgspec

from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import counted, one_line
from tollbridge.cli.written import read_request
from tollbridge.core.errors import RequestError
from tollbridge.core.places import database_file
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.tokens import EstimationResult, Share
from tollbridge.tokens.families import family_of
from tollbridge.tokens.texts import Texts
from tollbridge.tokens.tokenizers import BASE, pieces, tokenizer

LIMIT = 256 * 1024 * 1024


class TextCount(msgspec.Struct, frozen=True):
    """`exact`: by the model's own vocabulary. `weighted`: by another's, or by samples, with what was learned.
    `characters`: no vocabulary could be loaded."""

    model: str
    tokens: int
    method: Literal["exact", "weighted", "characters"]
    vocabulary: str | None
    parts: tuple[Share, ...]


@click.command()
@click.argument("file", type=click.File("rb"), required=False)
@click.option(
    "--model",
    "-m",
    required=True,
    metavar="NAME",
    help="Whose tokens: openai/gpt-5, anthropic/claude-sonnet-4.5…",
)
@click.option(
    "--messages", type=click.File("rb"), metavar="FILE.json", help="A conversation instead of a text."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def count(file: IO[bytes] | None, model: str, messages: IO[bytes] | None, as_json: bool) -> None:
    """Count the tokens of FILE (- for standard input), or of a conversation.

    What was learned from earlier answers of the model is used, and nothing is sent anywhere.
    """
    if (file is None) == (messages is None):
        raise click.UsageError("Give a FILE (or -), or --messages FILE.json, and not both.")
    estimator = HybridTokenEstimator(database_file())
    try:
        if messages is not None:
            request = read_request(model, _read(messages))
            _show_conversation(model, estimator.estimate_request(request), as_json)
        elif file is not None:
            _show_text(count_text(estimator, model, _read(file).decode("utf-8", "replace")), as_json)
    except RequestError as error:
        raise click.ClickException(one_line(error.message)) from error
    finally:
        estimator.close()


def _read(file: IO[bytes]) -> bytes:
    try:
        data = file.read(LIMIT + 1)
    except OSError as error:
        raise RequestError(f"{file.name} cannot be read: {error.strerror or error}.") from error
    if len(data) > LIMIT:
        raise RequestError(f"{file.name} is longer than {LIMIT >> 20} MiB, the most that is counted.")
    return data


def count_text(estimator: HybridTokenEstimator, model: str, text: str) -> TextCount:
    """What a text comes to for a model, and how that is known."""
    family = family_of(model)
    tokens = estimator.estimate_text(model, text)
    vocabulary = family.vocabulary or BASE
    if tokenizer(vocabulary) is None:
        return TextCount(model, tokens, "characters", None, (Share("by characters", tokens),))
    raw = sum(number for _, number in Texts().vector(family, text))
    parts = [Share(f"tokens of {vocabulary}", raw)]
    if tokens != raw:
        parts.append(
            Share("added for this model" if tokens > raw else "taken off for this model", tokens - raw)
        )
    exact = family.vocabulary is not None and tokens == raw and pieces(text)[1] == 1
    return TextCount(model, tokens, "exact" if exact else "weighted", vocabulary, tuple(parts))


def _show_text(found: TextCount, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(found))
        return
    by = f", vocabulary {found.vocabulary}" if found.vocabulary else ""
    click.echo(f"{counted(found.tokens, 'token')} for {one_line(found.model)} ({found.method}{by})")
    if len(found.parts) > 1:
        _show_parts(found.parts)


def _show_conversation(model: str, estimate: EstimationResult, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"model": model, **msgspec.to_builtins(estimate)}))
        return
    click.echo(
        f"{counted(estimate.tokens, 'token')} for {one_line(model)} "
        f"({estimate.method}, confidence {estimate.confidence:.0%})"
    )
    _show_parts(estimate.parts)


def _show_parts(parts: tuple[Share, ...]) -> None:
    for part in parts:
        click.echo(f"  {part.tokens:>9,}  {part.label}")
