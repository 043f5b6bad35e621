"""Standard input and output, over real pipes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from threading import Event, Thread, Timer

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


def test_a_full_queue_blocks_no_write_and_calls_back_when_it_is_shorter(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "QUEUE_WAIT_BYTES", 100_000)
    wire.stdio.write(bytes(200_000))  # more than a pipe holds
    assert wire.stdio.is_full
    waited, called = Event(), Event()

    def wait() -> None:
        wire.stdio.wait_until_writable()
        waited.set()

    Thread(target=wait, daemon=True).start()
    wire.stdio.when_writable(called.set)
    wire.stdio.write(b"at once")
    assert not waited.wait(0.2)
    assert not called.is_set()
    assert read(wire.editor_end, 200_000) == bytes(200_000)
    assert waited.wait(SOON)
    assert called.wait(SOON)
    assert not wire.stdio.is_full
    assert read(wire.editor_end, 7) == b"at once"


@pytest.mark.parametrize("ending", ["closed by us", "closed by the client"])
def test_nothing_waits_for_a_full_queue_after_the_end(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(stdio, "QUEUE_WAIT_BYTES", 100_000)
    wire.stdio.write(bytes(200_000))
    called = Event()
    wire.stdio.when_writable(called.set)
    assert not called.is_set()
    if ending == "closed by us":
        wire.stdio.stop_waiting()
    else:
        wire.close(wire.editor_end)
        wire.editor_end = os.open(os.devnull, os.O_RDONLY)
        wire._fds.append(wire.editor_end)
    assert called.wait(SOON)
    wire.stdio.wait_until_writable()
    again = Event()
    wire.stdio.when_writable(again.set)
    assert again.is_set()


def test_a_client_that_never_reads_is_given_up(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "QUEUE_LIMIT_BYTES", 100_000)
    wire.stdio.write(bytes(200_000))
    with pytest.raises(BrokenPipeError):
        wire.stdio.write(b"one more")


@pytest.mark.io
def test_ends_that_the_client_made_non_blocking_are_read_and_written() -> None:
    """A socket pair, as Node gives to its children; the client may set both ends to non-blocking."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        line = Stdio(ours.fileno(), ours.fileno())
        lost = Event()
        line.start(lost.set)
        Timer(0.1, theirs.sendall, [b"hello"]).start()
        assert line.read() == b"hello"
        line.write(bytes(1_000_000))  # more than a socket holds
        assert len(theirs.recv(1_000_000, socket.MSG_WAITALL)) == 1_000_000
        line.close(SOON)
        assert not lost.is_set()


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
