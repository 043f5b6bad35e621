"""Convert the editor's settings and accounts to those of the engine."""

from __future__ import annotations

from typing import Any

import msgspec

from tollbridge.config.schema import Account
from tollbridge.config.validation import validate_settings
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.limits import LIMITS
from tollbridge.types.errors import RequestError

# The account name under which the editor's usage and model lists are stored, followed by the account's id.
EDITOR_ACCOUNT = "editor"
# Settings that concern this program. All others are those of the settings file, with the same names.
_OWN_SETTINGS = frozenset({"report_credits", "image_folder", "embed_images"})


def editor_settings_layer(settings: wire.EditorSettings) -> dict[str, Any]:
    """Convert the editor's settings to a configuration layer, without those that the editor left out."""
    layer = msgspec.structs.asdict(settings)
    timeouts = msgspec.structs.asdict(settings.timeouts)
    layer["timeouts"] = {name: seconds for name, seconds in timeouts.items() if seconds is not None}
    return {
        name: value
        for name, value in layer.items()
        if name not in _OWN_SETTINGS and value not in (None, (), {})
    }


def convert_account(params: wire.AccountParams) -> Account:
    """Convert an editor's account.

    Without an id, two keys of a gateway cannot be distinguished after a restart, so a list that needed a key
    is not cached on disk.

    Raises:
        RequestError: The id is the key: ids are stored.
    """
    if params.id and params.id == params.api_key:
        raise RequestError("The id of an account must not be its key. Send another id, or none.")
    layer = {"headers": params.headers}
    return Account(
        f"{EDITOR_ACCOUNT}-{params.id[: LIMITS.account_id_characters]}" if params.id else EDITOR_ACCOUNT,
        params.base_url,
        params.backend,
        "none",
        anonymous=bool(params.api_key and not params.id),
        api_key=params.api_key or None,
        headers=validate_settings(layer, lambda _: "editor").headers if params.headers else {},
    )
