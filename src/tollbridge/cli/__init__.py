"""The `tollbridge` command. Subcommands are in modules that are imported when they are used."""

from __future__ import annotations

import difflib
import gc
import importlib
import logging
import os
import sys
import traceback
from types import TracebackType

import click

from tollbridge.cli.terminal import dim, one_line, wrap_line, wrap_standard_streams
from tollbridge.types.errors import BridgeError

# Each subcommand: the module that defines it, and its line in the list of commands. The line is here so that
# `tollbridge --help` does not import the modules.
COMMANDS: dict[str, tuple[str, str]] = {
    "accuracy": ("tollbridge.cli.count", "Show the accuracy of token estimates."),
    "ask": ("tollbridge.cli.ask", "Send one prompt and print the answer."),
    "budget": ("tollbridge.cli.budget", "Show, set and remove limits of what requests may cost."),
    "chat": ("tollbridge.cli.chat", "Start an interactive chat."),
    "config": ("tollbridge.cli.config", "Show and change the settings."),
    "count": ("tollbridge.cli.count", "Count the tokens in a text or a conversation."),
    "doctor": ("tollbridge.cli.doctor", "Test a server's compatibility and save a profile."),
    "explain": ("tollbridge.cli.explain", "Explain why a prompt was not read from the cache."),
    "gateway": ("tollbridge.cli.serve", "Run the embedded gateway for tests."),
    "local": ("tollbridge.cli.serve", "Download and serve a small local model."),
    "log": ("tollbridge.cli.log", "List, show and delete kept conversations."),
    "login": ("tollbridge.cli.config", "Store an API key in the system keyring."),
    "logout": ("tollbridge.cli.config", "Remove an API key from the system keyring."),
    "models": ("tollbridge.cli.models", "List a gateway's models."),
    "quirks": ("tollbridge.cli.quirks", "Show what servers do not accept; forget what was learned."),
    "replay": ("tollbridge.cli.replay", "Replay recordings with the current version."),
    "serve": ("tollbridge.cli.serve", "Run a local server for editors and agents (HTTP)."),
    "sidecar": ("tollbridge.cli", "Run the sidecar (JSON-RPC server) that editors start."),
    "usage": ("tollbridge.cli.usage", "Show token usage and cost, in the terminal or as a page."),
}


class _CommandGroup(click.Group):
    """A group that imports the module of a command when the command is used."""

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
            matches = difflib.get_close_matches(name, COMMANDS, 1)
            suggestion = f" Did you mean {matches[0]!r}?" if matches else ""
            ctx.fail(f"Unknown command {name!r}.{suggestion}")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.command(
    cls=_CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The API key is read from the environment (TOLLBRIDGE_API_KEY, AI_GATEWAY_API_KEY or "
    "VERCEL_OIDC_TOKEN) or, after `tollbridge login`, from the system keyring.\n\n"
    "Exit codes: 0 success, 1 the command failed, 2 the command line is wrong, 130 interrupted (Ctrl-C).",
)
@click.version_option(package_name="tollbridge", message="%(prog)s %(version)s")
def tollbridge() -> None:
    """Chat with models through AI gateways and track token usage."""


@click.command()
def sidecar() -> int:
    """Run the sidecar, a JSON-RPC server on standard input and output, until the client disconnects.

    Editors start it; docs/protocol.md describes the protocol.
    """
    from tollbridge.frontends.stdio import main

    return main()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. Every error becomes a message on standard error and an exit code."""
    sys.excepthook = _print_internal_error
    wrap_standard_streams()
    # Imports create many objects that stay. Searching them for garbage again and again takes 12 ms.
    gc.set_threshold(20_000)
    # Python uses `lastResort` because this program configures no logging.
    logging.lastResort = WarningHandler(logging.WARNING)
    code = _run(arguments)
    # At exit the interpreter would search all objects for garbage, which takes 30 ms, before it ends.
    gc.freeze()
    sys.exit(code)


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


def _print_internal_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an unexpected exception on one line, or as a traceback if TOLLBRIDGE_DEBUG is set."""
    if os.environ.get("TOLLBRIDGE_DEBUG"):
        traceback.print_exception(kind, error, trace)
        return
    click.echo(
        f"Internal error: {kind.__name__}: {one_line(str(error))}. "
        "Run the command again with TOLLBRIDGE_DEBUG=1 and please report the traceback.",
        err=True,
    )


class WarningHandler(logging.Handler):
    """Print warnings of the library as sentences on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        message = one_line(record.getMessage()).rstrip(".")
        first_word, _, _ = message.partition(" ")
        if first_word.isalpha():  # not a file path
            message = message[0].upper() + message[1:]
        click.echo(dim(wrap_line(f"Note: {message}.", sys.stderr), sys.stderr), err=True)
