"""What the parts below warn of, as a person reads it: a sentence on standard error."""

from __future__ import annotations

import logging
import sys

import click

from tollbridge.cli.terminal import Paint, folded, one_line


class Sentences(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        said = one_line(record.getMessage()).rstrip(".")
        first, _, _ = said.partition(" ")
        if first.isalpha():  # a word, and not the path of a file
            said = said[0].upper() + said[1:]
        paint = Paint(sys.stderr)
        click.echo(f"{paint.dim}{folded(f'Note: {said}.', sys.stderr)}{paint.plain}", err=True)


def speak_plainly() -> None:
    """For programs that set up no log of their own."""
    logging.lastResort = Sentences(logging.WARNING)
