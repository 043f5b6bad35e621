"""The program a person starts. Each command lives in its own module and is loaded when it is used."""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import sys
import traceback
from types import TracebackType

import click

from tollbridge.cli.terminal import Paint, claim_streams, folded, one_line
from tollbridge.types.errors import BridgeError

# SECTION What the parts below warn of, as a person reads it: a sentence on standard error.


class WarningHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        said = one_line(record.getMessage()).rstrip(".")
        first, _, _ = said.partition(" ")
        if first.isalpha():  # a word, and not the path of a file
            said = said[0].upper() + said[1:]
        paint = Paint(sys.stderr)
        click.echo(f"{paint.dim}{folded(f'Note: {said}.', sys.stderr)}{paint.plain}", err=True)


def print_warnings() -> None:
    """For programs that set up no log of their own."""
    logging.lastResort = WarningHandler(logging.WARNING)


# SECTION The program a person starts. Each command lives in its own module and is loaded when it is used.

# The commands: where each one lives, and what the list of commands says about it.
COMMANDS: dict[str, tuple[str, str]] = {
    "accuracy": ("tollbridge.cli.accuracy", "Show how right the token estimates were."),
    "ask": ("tollbridge.cli.ask", "Ask one question and print the answer."),
    "chat": ("tollbridge.cli.chat", "Talk with a model in the terminal."),
    "config": ("tollbridge.cli.config", "Show every setting in force, and where it came from."),
    "count": ("tollbridge.cli.count", "Count the tokens of a text or a conversation."),
    "doctor": ("tollbridge.cli.doctor", "Examine a server and write the profile to talk to it by."),
    "gateway": ("tollbridge.cli.servers", "Serve the embedded OpenResponses gateway, for tests."),
    "local": ("tollbridge.cli.servers", "Fetch a small model and serve it on this machine."),
    "login": ("tollbridge.cli.login", "Keep an account's key in the system's keyring."),
    "logout": ("tollbridge.cli.login", "Take an account's key out of the keyring."),
    "models": ("tollbridge.cli.models", "List the models of a gateway."),
    "replay": ("tollbridge.cli.replay", "Run recorded turns and responses through the code of today."),
    "sidecar": ("tollbridge.cli.sidecar", "Serve an editor over standard input and output."),
    "usage": ("tollbridge.cli.usage", "Show what was used, by day and model, and what it cost."),
}


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[name][0]), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = difflib.get_close_matches(name, COMMANDS, 1)
            meant = f" Did you mean {close[0]}?" if close else ""
            ctx.fail(f"There is no command {name!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Keys come from the environment (TOLLBRIDGE_API_KEY, AI_GATEWAY_API_KEY or VERCEL_OIDC_TOKEN) or, "
    "after `tollbridge login`, from the system's keyring.",
)
@click.version_option(package_name="tollbridge", message="%(prog)s %(version)s")
def tollbridge() -> None:
    """Talk to AI gateways: streamed answers, and the toll to the token."""


def main(arguments: list[str] | None = None) -> None:
    """The edge: whatever happens becomes a sentence and an exit code."""
    sys.excepthook = _last_words
    claim_streams()
    print_warnings()
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = tollbridge.main(arguments, prog_name="tollbridge", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BridgeError as error:
        from tollbridge.cli.errors import print_error

        print_error(error)
        return 1
    return code if isinstance(code, int) else 0


def _last_words(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A mistake of ours: a sentence too, with the details for whoever asks."""
    if os.environ.get("TOLLBRIDGE_DEBUG"):
        traceback.print_exception(kind, error, trace)
        return
    click.echo(
        f"Error: Something is wrong inside Tollbridge ({kind.__name__}: {error}). "
        "Run it again with TOLLBRIDGE_DEBUG=1 for the details, and please report them.",
        err=True,
    )
