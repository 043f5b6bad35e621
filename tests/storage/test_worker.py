"""The background thread that runs functions in order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest

from tollbridge.storage.worker import BatchQueue, WorkerThread, wait_for_write


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_the_thread_starts_with_the_first_submit_and_ends_with_close() -> None:
    worker = WorkerThread("test worker")
    assert "test worker" not in thread_names()
    assert worker.submit(lambda: threading.current_thread().name).result(10) == "test worker"
    assert threading.current_thread().name != "test worker"
    worker.close(10)
    assert "test worker" not in thread_names()


def test_functions_run_in_the_order_of_submission() -> None:
    worker, numbers = WorkerThread("test worker"), list[int]()
    for number in range(100):
        worker.submit(lambda number=number: numbers.append(number))  # type: ignore[misc]
    worker.close(10)
    assert numbers == list(range(100))


def test_an_exception_is_in_the_future_and_the_thread_goes_on() -> None:
    worker = WorkerThread("test worker")
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda: 1 / 0).result(10)
    assert worker.submit(lambda: 1).result(10) == 1
    worker.close(10)


def test_a_cancelled_function_does_not_run() -> None:
    worker, started, go_on = WorkerThread("test worker"), threading.Event(), threading.Event()
    calls: list[str] = []

    def block() -> None:
        started.set()
        go_on.wait(10)

    worker.submit(block)
    assert started.wait(10)
    cancelled = worker.submit(lambda: calls.append("cancelled"))
    assert cancelled.cancel()
    last = worker.submit(lambda: calls.append("last"))
    go_on.set()
    last.result(10)
    worker.close(10)
    assert calls == ["last"]


def test_close_waits_no_longer_than_the_timeout() -> None:
    worker, go_on = WorkerThread("test worker"), threading.Event()
    future = worker.submit(lambda: go_on.wait(10))
    worker.close(0.01)
    assert not future.done()
    go_on.set()
    assert future.result(10)


@pytest.mark.parametrize("used", [False, True])
def test_a_function_submitted_after_close_does_not_run(used: bool) -> None:
    worker = WorkerThread("test worker")
    if used:
        worker.submit(lambda: None)
    worker.close(10)
    assert not worker.submit(lambda: None).done()
    assert "test worker" not in thread_names()


async def test_waiting_for_a_write_returns_when_it_is_done_or_after_the_timeout() -> None:
    await wait_for_write(None)
    worker, go_on = WorkerThread("test worker"), threading.Event()
    write = worker.submit(lambda: go_on.wait(10))
    await wait_for_write(write, 0.01)
    assert not write.done()
    go_on.set()
    await wait_for_write(write, 10)
    assert write.done()
    worker.close(10)


async def test_waiting_for_a_write_raises_its_exception() -> None:
    write: Future[None] = Future()
    write.set_exception(KeyError("name"))
    started = time.monotonic()
    with pytest.raises(KeyError):
        await wait_for_write(write, 10)
    assert time.monotonic() - started < 5


def test_a_batch_has_all_items_that_arrived_while_the_thread_was_busy() -> None:
    worker, go_on, batches = WorkerThread("test worker"), threading.Event(), list[list[int]]()
    queue = BatchQueue[int](worker, batches.append)
    worker.submit(lambda: go_on.wait(30))
    futures = [queue.add(number) for number in range(5)]
    assert len(queue) == 5
    go_on.set()
    futures[0].result(30)
    queue.add(5).result(30)
    worker.close(30)
    assert batches == [[0, 1, 2, 3, 4], [5]]
    assert all(future.done() for future in futures)


def test_items_that_may_wait_are_handled_with_the_next_one_that_may_not() -> None:
    worker, batches = WorkerThread("test worker"), list[list[str]]()
    queue = BatchQueue[str](worker, batches.append)
    waiting = [queue.add("first", delay=3600), queue.add("second", delay=3600)]
    queue.add("third").result(30)
    assert all(future.done() for future in waiting)
    worker.close(30)
    assert batches == [["first", "second", "third"]]


def test_items_that_may_wait_are_handled_after_their_delay_or_when_asked() -> None:
    worker, batches = WorkerThread("test worker"), list[list[str]]()
    queue = BatchQueue[str](worker, batches.append)
    queue.add("first", delay=0.01).result(30)
    second = queue.add("second", delay=3600)
    queue.hurry()
    second.result(30)
    worker.close(30)
    assert batches == [["first"], ["second"]]


async def test_a_result_can_be_awaited() -> None:
    worker = WorkerThread("test worker")
    assert await worker.submit(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await worker.submit(lambda: 1 / 0)
    worker.close(10)


def test_a_delayed_item_does_not_block_the_thread() -> None:
    worker, batches = WorkerThread("test worker"), list[list[str]]()
    queue = BatchQueue[str](worker, batches.append)
    queue.add("later", delay=3600)
    assert worker.submit(lambda: list(batches)).result(30) == []
    worker.close(30)


def test_functions_can_be_called_later_and_in_the_order_of_their_times() -> None:
    worker, names, last = WorkerThread("test worker"), list[str](), threading.Event()
    worker.call_later(0.02, last.set)
    worker.call_later(0.01, lambda: names.append("second"))
    worker.call_later(0.0, lambda: names.append("first"))
    assert last.wait(30)
    worker.close(30)
    assert names == ["first", "second"]
