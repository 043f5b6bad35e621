"""What the process that holds the model says of itself: one line of JSON."""

from __future__ import annotations

import msgspec


class Listening(msgspec.Struct, frozen=True, tag="listening"):
    address: str


class NotListening(msgspec.Struct, frozen=True, tag="not_listening"):
    reason: str


Announcement = Listening | NotListening
