"""A thread that writes, one thing after the other, for writing may have to wait for another process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class Writer:
    """Not a pool: its threads are waited for when the program ends, however long that takes."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, act: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        self._tasks.put(lambda: _settle(done, act))
        return done

    def close(self, within: float) -> None:
        """When all has been written; though not for ever."""
        self._tasks.put(None)
        self._thread.join(within)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


def _settle(done: Future[Any], act: Callable[[], object]) -> None:
    try:
        result = act()
    except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
        done.set_exception(error)
    else:
        done.set_result(result)
