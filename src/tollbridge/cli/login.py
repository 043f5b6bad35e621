"""`tollbridge login` and `tollbridge logout`: an account's key in the system's keyring."""

from __future__ import annotations

import getpass
import sys

import click

from tollbridge.config.accounts import Account, named_account, resolve_account
from tollbridge.config.keys import clean_key, delete_key, set_key
from tollbridge.config.loading import load_settings

# No key is longer; something else was piped in.
LONGEST = 16 * 1024


@click.command()
@click.argument("account", required=False)
def login(account: str | None) -> None:
    """Keep the key of an account in the system's keyring.

    ACCOUNT is one of your settings file, or the one in use. The key is typed without being shown, or piped.
    """
    chosen = _account(account)
    key = clean_key(_read_key(chosen), "What was given")
    if not key:
        raise click.UsageError("No key was given. Type it, or pipe it in: tollbridge login < key.txt")
    set_key(chosen, key)
    click.echo(f"The key of {chosen.name} ({chosen.base_url}) is in the system's keyring.", err=True)


@click.command()
@click.argument("account", required=False)
def logout(account: str | None) -> int:
    """Take the key of an account out of the system's keyring."""
    chosen = _account(account)
    found = delete_key(chosen)
    told = "is forgotten" if found else "is not in the system's keyring"
    click.echo(f"The key of {chosen.name} ({chosen.base_url}) {told}.", err=True)
    return int(not found)


def _account(name: str | None) -> Account:
    loaded = load_settings()
    return resolve_account(loaded) if name is None else named_account(loaded, name)


def _read_key(account: Account) -> str:
    """Never an argument: those can be seen in the list of processes."""
    if sys.stdin.isatty():
        return getpass.getpass(f"Key of {account.name} ({account.base_url}), not shown: ", sys.stderr)
    return sys.stdin.read(LONGEST)
