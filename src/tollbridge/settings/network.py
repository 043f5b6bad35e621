"""How the network is used, as the settings have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollbridge.settings.model import Settings

if TYPE_CHECKING:
    from tollbridge.io.http import Timeouts


def http_timeouts(settings: Settings) -> Timeouts:
    """In the settings 0 is no bound; the client says `None` for that."""
    # Not at the top: it loads aiohttp, and settings are read long before anything is asked.
    from tollbridge.io.http import Timeouts

    times = settings.timeouts
    return Timeouts(connect=times.connect, idle=times.idle or None, total=times.total or None)
