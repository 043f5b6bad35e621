"""A thread beside the one that reads, for answers that take a while: what comes meanwhile is heard."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

STOP_SECONDS = 2.0


class Worker:
    """Does one thing after the other, in the order given. What it is given may not raise."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def do(self, task: Callable[[], object]) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="worker", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def stop(self) -> None:
        """When all has been done; though not for ever."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
