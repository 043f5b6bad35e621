"""Standard input and output, over real pipes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from tollbridge.transport import stdio
from tollbridge.transport.stdio import Stdio

SOON = 10.0


class Wire:
    def __init__(self) -> None:
        self.editor_end, write_fd = os.pipe()
        read_fd, self.to_us = os.pipe()
        self._fds = [self.editor_end, write_fd, read_fd, self.to_us]
        self.lost = Event()
        self.stdio = Stdio(read_fd, write_fd)
        self.stdio.start(self.lost.set)

    def close(self, *fds: int) -> None:
        for fd in fds or tuple(self._fds):
            os.close(fd)
            self._fds.remove(fd)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close(wire.editor_end)  # ends the writer thread, also if the queue is not empty
    wire.stdio.close(SOON)
    wire.close()


def read(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += os.read(fd, count - len(data))
    return data


def test_writes_of_several_threads_do_not_interleave_and_keep_their_order(wire: Wire) -> None:
    frames = [[b"%d-%05d;" % (name, number) * 500 for number in range(20)] for name in range(4)]

    def write(mine: list[bytes]) -> None:
        for frame in mine:
            wire.stdio.write(frame)

    threads = [Thread(target=write, args=(mine,)) for mine in frames]
    for thread in threads:
        thread.start()
    data = read(wire.editor_end, sum(len(frame) for mine in frames for frame in mine))
    for thread in threads:
        thread.join(SOON)
    length = len(frames[0][0])
    chunks = [data[start : start + length] for start in range(0, len(data), length)]
    for mine in frames:
        assert [frame for frame in chunks if frame[:2] == mine[0][:2]] == mine


def test_writers_wait_for_a_long_queue_unless_they_must_not(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "QUEUE_WAIT_BYTES", 100_000)
    wire.stdio.write(bytes(200_000))  # more than a pipe holds
    written = Event()

    def write() -> None:
        wire.stdio.write(b"patient")
        written.set()

    Thread(target=write, daemon=True).start()
    wire.stdio.write(b"at once", wait=False)
    assert not written.wait(0.2)
    assert read(wire.editor_end, 200_000) == bytes(200_000)
    assert written.wait(SOON)
    assert read(wire.editor_end, 14) == b"at oncepatient"


def test_a_client_that_never_reads_is_given_up(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "QUEUE_LIMIT_BYTES", 100_000)
    wire.stdio.write(bytes(200_000), wait=False)
    with pytest.raises(BrokenPipeError):
        wire.stdio.write(b"one more", wait=False)


def test_a_closed_client_is_noticed_and_reported(wire: Wire) -> None:
    wire.close(wire.editor_end)
    wire.stdio.write(b"hello?")
    assert wire.lost.wait(SOON)
    with pytest.raises(BrokenPipeError):
        wire.stdio.write(b"hello?")
    wire.editor_end = os.open(os.devnull, os.O_RDONLY)
    wire._fds.append(wire.editor_end)


def test_the_queue_is_written_before_closing(wire: Wire) -> None:
    wire.stdio.write(b"goodbye")
    wire.stdio.close(SOON)
    assert read(wire.editor_end, 7) == b"goodbye"
