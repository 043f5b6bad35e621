"""What the parts below warn of, as a person reads it: a sentence on standard error."""

from __future__ import annotations

import logging
import sys

import click

from tollbridge.cli.terminal import folded, one_line


class Sentences(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        said = one_line(record.getMessage()).rstrip(".")
        click.echo(folded(f"Note: {said[:1].upper()}{said[1:]}.", sys.stderr), err=True)


def speak_plainly() -> None:
    """For programs that set up no log of their own."""
    logging.lastResort = Sentences(logging.WARNING)
