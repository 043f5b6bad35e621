"""Standard input and output as the wire of a protocol, which nothing else can write to."""

from __future__ import annotations

import os
import sys
from threading import Lock

READ_BYTES = 64 * 1024


class Stdio:
    """Reads what the editor sends and writes what it gets; writes of several threads do not mix."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._lock = Lock()

    def read(self) -> bytes:
        """The next bytes, as soon as there are any; empty when the other end has closed."""
        return os.read(self._read_fd, READ_BYTES)

    def write(self, data: bytes) -> None:
        """Raises BrokenPipeError when nobody reads any more."""
        rest = memoryview(data)
        with self._lock:
            while rest:
                rest = rest[os.write(self._write_fd, rest) :]


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
