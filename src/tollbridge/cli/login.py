"""`tollbridge login` and `tollbridge logout`: store or remove an API key in the system keyring."""

from __future__ import annotations

import getpass
import sys

import click

from tollbridge.config.accounts import Account, named_account, resolve_account
from tollbridge.config.keys import clean_key, delete_key, set_key
from tollbridge.config.loading import load_settings

# Keys are shorter; longer input is not a key.
MAX_KEY_LENGTH = 16 * 1024


@click.command()
@click.argument("account", required=False)
def login(account: str | None) -> None:
    """Store an account's API key in the system keyring.

    ACCOUNT is an account from the settings file; default: the current account. The key is read from a
    hidden prompt, or from standard input if it is piped.
    """
    chosen = _find_account(account)
    key = clean_key(_read_key(chosen), "The key")
    if not key:
        raise click.UsageError("No key provided. Type it or pipe it in: tollbridge login < key.txt")
    set_key(chosen, key)
    click.echo(f"Saved the key for {chosen.name} ({chosen.base_url}) in the system keyring.", err=True)


@click.command()
@click.argument("account", required=False)
def logout(account: str | None) -> int:
    """Remove an account's API key from the system keyring.

    ACCOUNT is an account from the settings file; default: the current account. Exits with 1 if the keyring
    has no key for it.
    """
    chosen = _find_account(account)
    deleted = delete_key(chosen)
    name = f"{chosen.name} ({chosen.base_url})"
    if deleted:
        click.echo(f"Removed the key for {name} from the system keyring.", err=True)
    else:
        click.echo(f"No key for {name} in the system keyring.", err=True)
    return int(not deleted)


def _find_account(name: str | None) -> Account:
    settings = load_settings()
    return resolve_account(settings) if name is None else named_account(settings, name)


def _read_key(account: Account) -> str:
    # The key is never an argument: the list of processes shows arguments to other users.
    if sys.stdin.isatty():
        return getpass.getpass(f"API key for {account.name} (input hidden): ", sys.stderr)
    return sys.stdin.read(MAX_KEY_LENGTH)
