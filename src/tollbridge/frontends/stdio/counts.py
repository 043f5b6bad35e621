"""Token counts for the editor, in a thread of their own and in the order they were requested."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from tollbridge.frontends.stdio.limits import LIMITS

if TYPE_CHECKING:
    from tollbridge.estimator import HybridTokenEstimator
    from tollbridge.frontends.vscode import wire
    from tollbridge.storage.database import WorkerThread
    from tollbridge.tokens.records import Accuracy


class TokenCounts:
    """Counts tokens. The estimator is loaded on first use, or earlier in the background."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._estimator: HybridTokenEstimator | None = None
        self._thread: WorkerThread | None = None

    def submit(self, function: Callable[[], object]) -> None:
        """Run a function in the thread that counts. Called from one thread only."""
        if self._thread is None:
            from tollbridge.storage.database import WorkerThread

            self._thread = WorkerThread("count")
        self._thread.submit(function)

    @property
    def loaded(self) -> bool:
        return self._estimator is not None

    def estimator(self) -> HybridTokenEstimator:
        # An editor caches counts, so nothing is guessed while the estimator loads: the caller waits.
        with self._lock:
            if self._estimator is None:
                from tollbridge.estimator import HybridTokenEstimator
                from tollbridge.transport.files import database_file

                self._estimator = HybridTokenEstimator(database_file())
            return self._estimator

    @property
    def revision(self) -> int | None:
        return None if self._estimator is None else self._estimator.revision

    def accuracy(self) -> list[Accuracy]:
        return [] if self._estimator is None else self._estimator.accuracy()

    def count(self, model: str, items: list[str | wire.Message]) -> list[int]:
        from tollbridge.frontends.vscode.images import shorten_images
        from tollbridge.frontends.vscode.requests import decode_message

        estimator = self.estimator()
        return [
            estimator.estimate_text(model, shorten_images(item))
            if isinstance(item, str)
            else estimator.estimate_message(model, decode_message(item))
            for item in items
        ]

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close(LIMITS.count_stop_seconds)
        if self._estimator is not None:
            self._estimator.close()
