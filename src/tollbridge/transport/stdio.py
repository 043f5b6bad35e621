"""Standard input and output as the transport of a protocol.

`claim_stdio` redirects file descriptor 1 to standard error, so that nothing but `Stdio` writes to the client.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread

READ_BYTES = 64 * 1024
# The size of the write queue at which data should wait, and the size at which the client is considered lost.
QUEUE_WAIT_BYTES = 1 << 20
QUEUE_LIMIT_BYTES = 64 << 20


class Stdio:
    """Reads from the client, and writes to it in order from a separate thread.

    A client that does not read for a while therefore blocks neither the thread that reads, so its end of file
    is noticed, nor an event loop. `write` only adds to a queue; a writer of much data waits before it, with
    `wait_until_writable` or `when_writable`, while `is_full`.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._wake_fds = os.pipe()  # what is written to the second end wakes up `read`
        self._thread = Thread(target=self._run, name="stdout", daemon=True)
        self._condition = Condition()
        self._queue: list[bytes] = []
        self._pending = 0  # bytes in the queue and bytes being written
        self._closing = False
        self._is_lost = False
        self._when_lost: Callable[[], object] = bool
        self._when_writable: list[Callable[[], object]] = []

    def start(self, when_lost: Callable[[], object]) -> None:
        """Start the writer thread, from which `when_lost` is called when the client has closed its end."""
        self._when_lost = when_lost
        self._thread.start()

    def read(self, timeout: float | None = None) -> bytes | None:
        """Wait for data and return it; empty at end of file, and when `stop_reading` was called.

        Args:
            timeout: Return `None` after this many seconds without data. It has no effect on Windows, where
                only sockets have timeouts.
        """
        while True:
            if sys.platform != "win32":
                readable = select.select([self._read_fd, self._wake_fds[0]], [], [], timeout)[0]
                if not readable:
                    return None
                if self._read_fd not in readable:
                    return b""
            with suppress(BlockingIOError):  # the client set this end to non-blocking, too
                return os.read(self._read_fd, READ_BYTES)

    def stop_reading(self) -> None:
        """End a `read` that waits in another thread."""
        if sys.platform != "win32":
            os.write(self._wake_fds[1], b"x")

    @property
    def pending_bytes(self) -> int:
        """How many bytes the client has not read yet, not counting those in the pipe."""
        return self._pending

    @property
    def is_full(self) -> bool:
        """Whether the client reads more slowly than it is written to, so that more data should wait."""
        return self._pending > QUEUE_WAIT_BYTES and not (self._closing or self._is_lost)

    def when_writable(self, callback: Callable[[], object]) -> None:
        """Call a function once, in another thread, when the queue is not full any more."""
        with self._condition:
            if self.is_full:
                self._when_writable.append(callback)
                return
        callback()

    def wait_until_writable(self) -> None:
        """Block this thread while the queue is full."""
        with self._condition:
            while self.is_full:
                self._condition.wait()

    def write(self, data: bytes) -> None:
        """Add data to the write queue. Does not block.

        Raises:
            BrokenPipeError: The client has closed its end, or the queue has reached its limit.
        """
        with self._condition:
            if self._is_lost or self._pending > QUEUE_LIMIT_BYTES:
                raise BrokenPipeError
            self._queue.append(data)
            self._pending += len(data)
            self._condition.notify_all()

    def stop_waiting(self) -> None:
        """Stop waiting for the queue to become shorter, because the program is about to exit."""
        with self._condition:
            self._closing = True
        self._notify()

    def close(self, within: float) -> None:
        """Wait until everything has been written, at most `within` seconds."""
        self.stop_waiting()
        self._thread.join(within)

    def _run(self) -> None:
        while data := self._next():
            try:
                _write_all(self._write_fd, data)
            except OSError:
                with self._condition:
                    self._is_lost = True
                self._notify()
                self._when_lost()
                return
            with self._condition:
                self._pending -= len(data)
            self._notify()

    def _notify(self) -> None:
        """Wake up everything that waits for the queue to become shorter, if it has."""
        callbacks: list[Callable[[], object]] = []
        with self._condition:
            self._condition.notify_all()
            if not self.is_full:
                callbacks, self._when_writable = self._when_writable, callbacks
        for callback in callbacks:
            callback()

    def _next(self) -> bytes:
        """Wait for the queue to fill and return its content; empty when closing."""
        with self._condition:
            while not (self._queue or self._closing):
                self._condition.wait()
            data = b"".join(self._queue)
            self._queue.clear()
            return data


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])


def _fill_stderr() -> None:
    """Open the null device as standard error if that is closed.

    Otherwise the next opened file would get descriptor 2 and receive everything written to standard error.
    """
    try:
        os.fstat(2)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != 2:
            os.dup2(null, 2)
            os.close(null)


def claim_stdio() -> Stdio:
    """Reserve standard input and output for the protocol.

    Afterwards a `print`, also in a library, writes to standard error, and child processes inherit neither
    end of the connection.
    """
    sys.stdout.flush()
    _fill_stderr()
    read_fd, write_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        for fd in (read_fd, write_fd):
            msvcrt.setmode(fd, os.O_BINARY)
    return Stdio(read_fd, write_fd)
