"""Standard input and output as the wire of a protocol, which nothing else can write to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Condition, Thread

READ_BYTES = 64 * 1024
# What may stand in line before a writer waits; and, for those who do not, before the editor is given up.
LONG_BYTES = 1 << 20
MOST_BYTES = 64 << 20


class Stdio:
    """Reads what the editor sends, and writes what it gets in a thread of its own, in order: an editor that
    does not read for a while keeps nobody from hearing that it leaves."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._thread = Thread(target=self._run, name="stdout", daemon=True)
        self._changed = Condition()
        self._line: list[bytes] = []
        self._waiting = 0  # bytes in line, and those being written
        self._ending = False
        self._lost = False
        self._when_lost: Callable[[], object] = bool

    def start(self, when_lost: Callable[[], object]) -> None:
        """`when_lost` is called, from another thread, when nobody reads any more."""
        self._when_lost = when_lost
        self._thread.start()

    def read(self) -> bytes:
        """The next bytes, as soon as there are any; empty when the other end has closed."""
        return os.read(self._read_fd, READ_BYTES)

    def write(self, data: bytes, *, wait: bool = True) -> None:
        """Puts it in line, and waits while that is long; the thread that reads may not.

        Raises BrokenPipeError when nobody reads any more.
        """
        with self._changed:
            while wait and self._waiting > LONG_BYTES and not (self._ending or self._lost):
                self._changed.wait()
            if self._lost or self._waiting > MOST_BYTES:
                raise BrokenPipeError
            self._line.append(data)
            self._waiting += len(data)
            self._changed.notify_all()

    def hurry(self) -> None:
        """The end is near: nobody waits for the line to become shorter."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def close(self, within: float) -> None:
        """When everything has been written; though not for ever."""
        self.hurry()
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
                self._waiting -= len(data)
                self._changed.notify_all()

    def _next(self) -> bytes:
        """All that is in line; nothing, at the end."""
        with self._changed:
            while not (self._line or self._ending):
                self._changed.wait()
            data = b"".join(self._line)
            self._line.clear()
            return data


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _fill_stderr() -> None:
    """Where standard error is closed, the next file opened would take its place, and its words."""
    try:
        os.fstat(2)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != 2:
            os.dup2(nowhere, 2)
            os.close(nowhere)


def claim_stdio() -> Stdio:
    """Takes standard input and output for the protocol.

    From here on a stray `print`, here or in a library, goes to standard error, and a child process
    inherits neither end.
    """
    sys.stdout.flush()
    _fill_stderr()
    read_fd, write_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        for fd in (read_fd, write_fd):
            msvcrt.setmode(fd, os.O_BINARY)
    return Stdio(read_fd, write_fd)
