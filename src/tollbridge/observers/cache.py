"""Explain what the provider's prompt cache did for a request."""

from __future__ import annotations

from collections.abc import Callable

from tollbridge.answer import Answer
from tollbridge.clients.observer import Observer
from tollbridge.observers.usage import UsageObserver
from tollbridge.storage.cache_tracker import CacheTracker
from tollbridge.storage.worker import wait_for_write
from tollbridge.types.messages import ChatRequest


class CacheObserver(Observer):
    """Compares the prompt with the previous one of its conversation, after a complete answer.

    Args:
        read_request: Returns the request as it was sent. It is called on a background thread.
        delay: Seconds that the explanation may wait; 0 if the answer waits for it.
    """

    def __init__(
        self,
        tracker: CacheTracker,
        usage: UsageObserver,
        read_request: Callable[[], ChatRequest],
        *,
        delay: float = 0.0,
    ) -> None:
        self._tracker = tracker
        self._usage = usage
        self._read_request = read_request
        self._delay = delay

    async def end(self, answer: Answer) -> None:
        if answer.outcome != "completed":
            return
        row, finished = self._usage.last_row, answer.finished
        explanation = self._tracker.add(self._read_request, row, finished, self._delay)
        await wait_for_write(explanation)
        if explanation is not None and explanation.done():
            answer.cache = explanation.result()
