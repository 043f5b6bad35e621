"""Token counts for the editor, in a thread of their own and in the order they were requested."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from tollbridge.frontends.stdio.limits import LIMITS

if TYPE_CHECKING:
    from tollbridge.estimator import HybridTokenEstimator
    from tollbridge.frontends.vscode import wire
    from tollbridge.storage.store import Store
    from tollbridge.storage.worker import WorkerThread
    from tollbridge.tokens.records import Accuracy


class TokenCounts:
    """Counts tokens. The estimator and the store are loaded on first use, or earlier in the background.

    The engine uses the same store. It is opened here and not by the engine, because editors request counts
    before the engine is imported, which takes longer than anything else.
    """

    def __init__(self) -> None:
        self.store: Store | None = None
        self._lock = Lock()
        self._estimator: HybridTokenEstimator | None = None
        self._thread: WorkerThread | None = None

    def submit(self, function: Callable[[], object]) -> None:
        """Run a function in the thread that counts. Called from one thread only."""
        if self._thread is None:
            from tollbridge.storage.worker import WorkerThread

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
                from tollbridge.storage.store import open_store

                self.store = open_store()
                self._estimator = HybridTokenEstimator(self.store.tokens)
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
        if self.store is not None:
            self.store.close()
