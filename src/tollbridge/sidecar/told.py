"""What an editor sets, as a layer of the settings."""

from __future__ import annotations

from typing import Any

import msgspec

from tollbridge.sidecar import wire

# Settings that are spelled here as in the settings file. What an editor leaves out is nobody's choice.
_SAME = (
    *("proxy", "allow_http", "allow", "deny", "favourites", "models"),
    *("context_management", "count_at_gateway", "record", "record_redact"),
)


def editor_layer(settings: wire.Settings) -> dict[str, Any]:
    given = {name: getattr(settings, name) for name in _SAME}
    times = msgspec.structs.asdict(settings.timeouts)
    given["timeouts"] = {name: seconds for name, seconds in times.items() if seconds is not None}
    return {name: value for name, value in given.items() if value not in (None, (), {})}
