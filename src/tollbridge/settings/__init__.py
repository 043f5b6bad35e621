"""What Tollbridge was told: settings, accounts, and where their keys come from."""

from tollbridge.settings.accounts import Chosen, all_accounts, chosen_account, named_account
from tollbridge.settings.checking import SettingsError, SettingsUnusable
from tollbridge.settings.keys import Key, describe_key, find_key
from tollbridge.settings.layers import Loaded, load
from tollbridge.settings.model import Settings
from tollbridge.settings.options import with_settings

__all__ = [
    "Chosen",
    "Key",
    "Loaded",
    "Settings",
    "SettingsError",
    "SettingsUnusable",
    "all_accounts",
    "chosen_account",
    "describe_key",
    "find_key",
    "load",
    "named_account",
    "with_settings",
]
