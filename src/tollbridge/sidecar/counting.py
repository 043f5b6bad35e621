"""How many tokens a text or a message has, asked thousands of times a turn."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollbridge.editors.vscode import wire
    from tollbridge.estimator import HybridTokenEstimator
    from tollbridge.tokens import Accuracy


class Counting:
    """Loads the estimator when it is first needed, or before, in the background."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._estimator: HybridTokenEstimator | None = None

    @property
    def loaded(self) -> bool:
        return self._estimator is not None

    def estimator(self) -> HybridTokenEstimator:
        # A guess made while it loads would be remembered by the editor: whoever asks waits instead.
        with self._lock:
            if self._estimator is None:
                from tollbridge.core.places import database_file
                from tollbridge.estimator import HybridTokenEstimator

                self._estimator = HybridTokenEstimator(database_file())
            return self._estimator

    @property
    def lesson(self) -> int | None:
        return None if self._estimator is None else self._estimator.lesson

    def accuracy(self) -> list[Accuracy]:
        return [] if self._estimator is None else self._estimator.accuracy()

    def warm(self) -> None:
        self.estimator().warm()

    def count(self, model: str, items: list[str | wire.Message]) -> list[int]:
        from tollbridge.editors.vscode.decode import decode_message

        estimator = self.estimator()
        return [
            estimator.estimate_text(model, item)
            if isinstance(item, str)
            else estimator.estimate_message(model, decode_message(item))
            for item in items
        ]

    def close(self) -> None:
        if self._estimator is not None:
            self._estimator.close()
