"""What can go wrong with a model on this machine."""

from __future__ import annotations

from tollbridge.core.errors import BridgeError


class LocalModelFailed(BridgeError):
    """`advice` is one sentence: what the person can do about it."""

    kind = "server"

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice
