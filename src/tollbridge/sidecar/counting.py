"""How many tokens a text or a message has, asked thousands of times a turn."""

from __future__ import annotations

from threading import Lock
from typing import Protocol

from tollbridge.core.messages import Message
from tollbridge.editors.vscode import wire
from tollbridge.editors.vscode.decode import decode_message


class Estimator(Protocol):
    def estimate_text(self, model: str, text: str) -> int: ...

    def estimate_message(self, model: str, message: Message) -> int: ...


class Counting:
    """Loads the estimator when it is first needed, or before, in the background."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._estimator: Estimator | None = None

    @property
    def method(self) -> str:
        return "not loaded" if self._estimator is None else type(self._estimator).__name__

    def warm(self) -> None:
        self._loaded()

    def count(self, model: str, items: list[str | wire.Message]) -> list[int]:
        estimator = self._loaded()
        return [
            estimator.estimate_text(model, item)
            if isinstance(item, str)
            else estimator.estimate_message(model, decode_message(item))
            for item in items
        ]

    def _loaded(self) -> Estimator:
        # A guess made while it loads would be remembered by the editor for the whole session: wait instead.
        with self._lock:
            if self._estimator is None:
                from tollbridge.sidecar.characters import Characters

                self._estimator = Characters()
            return self._estimator
