"""One who sees what travels: every request, every answer, every byte as it came, and every failed attempt."""

from __future__ import annotations

from collections.abc import Mapping

from tollbridge.core.errors import BridgeError


class Watch:
    """Looks away. One that records looks; it must not raise, and must not keep the key in the headers."""

    def asked(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """A request is about to be sent; once for each attempt."""

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer has begun."""

    def received(self, chunk: bytes) -> None:
        """A piece of the answer's body, unpacked, as one read gave it."""

    def waiting(self, error: BridgeError, seconds: float) -> None:
        """An attempt failed, and after so long the next one is made."""
