"""A blocking interface to the engine, for scripts and notebooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self, TypeVar

from tollbridge.answer import Answer
from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.storage.tracker import UsageTracker
from tollbridge.types.errors import RequestError
from tollbridge.types.events import Event
from tollbridge.types.messages import ChatRequest, Message
from tollbridge.types.models import Model

T = TypeVar("T")


class SyncEngine:
    """`Engine` for code that is not asynchronous.

        with SyncEngine.open() as engine:
            print(engine.create("What is a bridge?", model="openai/gpt-5.4").text)

    The engine runs in an event loop in a thread of its own, so this also works in a notebook, where the main
    thread has a running event loop.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="tollbridge", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, *args: Any, **options: Any) -> SyncEngine:
        """Return an engine, to be used in `with`. The arguments are those of `Engine.open`."""
        return cls(Engine.open(*args, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and store everything that was learned."""
        if self._loop.is_closed():
            return
        self._run(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def account(self, name: str | None = None) -> Account:
        """Return an account with its key: by name, or the one that the settings select."""
        return self._run(self._engine.account(name))

    def models(self, account: Account | str | None = None, *, refresh: bool = False) -> list[Model]:
        """Return the chat models that the settings allow, favourites first."""
        return self._run(self._engine.models(account, refresh=refresh))

    def create(
        self, request: ChatRequest | str, account: Account | str | None = None, *, model: str | None = None
    ) -> Answer:
        """Run one turn and return its answer when it is complete.

        Raises:
            BridgeError: The turn failed.
        """
        return self._run(self._engine.create(request, account, model=model))

    def stream(
        self, request: ChatRequest | str, account: Account | str | None = None, *, model: str | None = None
    ) -> Iterator[Event]:
        """Yield the events of one turn as they arrive. Leaving the loop early closes the connection.

        Raises:
            BridgeError: The turn failed. It is raised after all events before it were yielded.
        """
        batches: SimpleQueue[list[Event] | None] = SimpleQueue()

        async def run_turn() -> None:
            async with self._engine.turn(request, account, model=model) as turn:
                async for batch in turn.batches():
                    batches.put(batch)

        task = self._start(run_turn(), lambda: batches.put(None))
        try:
            while (batch := batches.get()) is not None:
                yield from batch
            _result(task)  # raises the error of the turn
        finally:
            self._cancel(task)

    def count(self, model: str, items: Iterable[str | Message]) -> list[int]:
        """Return the tokens of each text or message, as the model counts them."""
        return self._engine.count(model, items)

    @property
    def usage(self) -> UsageTracker:
        """The usage of all requests of this engine."""
        return self._engine.usage

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop's thread and wait for it. An interruption such as Ctrl-C cancels it."""
        ended = Future[None]()
        task = self._start(work, lambda: ended.set_result(None))
        try:
            ended.result()
        except BaseException:
            self._cancel(task)
            raise
        return _result(task)

    def _start(self, work: Coroutine[Any, Any, T], on_end: Callable[[], object]) -> asyncio.Task[T]:
        """Start a coroutine in the loop's thread, where `on_end` is called when it has ended."""
        if self._loop.is_closed():
            work.close()
            raise RequestError("The engine is closed. Open a new one with SyncEngine.open().")
        started: Future[asyncio.Task[T]] = Future()

        def start() -> None:
            task = self._loop.create_task(work)
            # Here, and not in the caller's thread: if the task had ended, the loop would not wake up for it.
            task.add_done_callback(lambda _: on_end())
            started.set_result(task)

        self._loop.call_soon_threadsafe(start)
        return started.result()

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task, unless it has ended, and wait for its end."""
        if task.done() or self._loop.is_closed():
            return
        ended = Future[None]()

        def cancel() -> None:
            task.add_done_callback(lambda _: ended.set_result(None))
            task.cancel()

        self._loop.call_soon_threadsafe(cancel)
        ended.result()

    async def _shut_down(self) -> None:
        """Cancel the turns that still run, for example of streams that were not read to the end."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._engine.aclose()


def _result(task: asyncio.Task[T]) -> T:
    if task.cancelled():
        raise RequestError("The engine was closed before the request ended.")
    return task.result()
