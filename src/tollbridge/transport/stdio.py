"""Standard input and output as the transport of a protocol.

`claim_stdio` redirects file descriptor 1 to standard error, so that nothing but `Stdio` writes to the client.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Condition, Thread

READ_BYTES = 64 * 1024
# The size of the write queue at which writers wait, and the size at which the client is considered lost.
QUEUE_WAIT_BYTES = 1 << 20
QUEUE_LIMIT_BYTES = 64 << 20


class Stdio:
    """Reads from the client, and writes to it in order from a separate thread.

    A client that does not read for a while therefore does not block reading, and its end of file is noticed.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._thread = Thread(target=self._run, name="stdout", daemon=True)
        self._changed = Condition()
        self._queue: list[bytes] = []
        self._pending = 0  # bytes in the queue and bytes being written
        self._closing = False
        self._lost = False
        self._when_lost: Callable[[], object] = bool

    def start(self, when_lost: Callable[[], object]) -> None:
        """Start the writer thread.

        Args:
            when_lost: Called from that thread when the client has closed its end.
        """
        self._when_lost = when_lost
        self._thread.start()

    def read(self) -> bytes:
        """Wait for data and return it; empty at end of file."""
        return os.read(self._read_fd, READ_BYTES)

    def write(self, data: bytes, *, wait: bool = True) -> None:
        """Add data to the write queue.

        Args:
            data: The bytes to write.
            wait: Whether to wait while the queue is long. The thread that reads must not wait.

        Raises:
            BrokenPipeError: The client has closed its end, or the queue has reached its limit.
        """
        with self._changed:
            while wait and self._pending > QUEUE_WAIT_BYTES and not (self._closing or self._lost):
                self._changed.wait()
            if self._lost or self._pending > QUEUE_LIMIT_BYTES:
                raise BrokenPipeError
            self._queue.append(data)
            self._pending += len(data)
            self._changed.notify_all()

    def stop_waiting(self) -> None:
        """Stop waiting for the queue to become shorter, because the program is about to exit."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self, within: float) -> None:
        """Wait until everything has been written, at most `within` seconds."""
        self.stop_waiting()
        self._thread.join(within)

    def _run(self) -> None:
        while data := self._next():
            try:
                _write_all(self._write_fd, data)
            except OSError:
                with self._changed:
                    self._lost = True
                    self._changed.notify_all()
                self._when_lost()
                return
            with self._changed:
                self._pending -= len(data)
                self._changed.notify_all()

    def _next(self) -> bytes:
        """Wait for the queue to fill and return its content; empty when closing."""
        with self._changed:
            while not (self._queue or self._closing):
                self._changed.wait()
            data = b"".join(self._queue)
            self._queue.clear()
            return data


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


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
