"""Replays a stream to everyone who asks, one event a write, as fast as it can. A process of its own."""

from __future__ import annotations

import contextlib
import socket
import threading

from bench.stream import frames

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Cache-Control: no-cache\r\nConnection: keep-alive\r\n\r\n"
)


def chunk(frame: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(frame), frame)


def serve(connection: socket.socket, stream: list[bytes]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, contextlib.suppress(OSError):
        while _read_request(connection):
            connection.sendall(HEAD)
            for piece in stream:
                connection.sendall(piece)
            connection.sendall(b"0\r\n\r\n")


def _read_request(connection: socket.socket) -> bool:
    """Reads one request with its body; false when the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return False
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return True


def main() -> None:
    made = frames()
    stream = [chunk(frame) for frame in made]
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], len(made), flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, stream), daemon=True).start()


if __name__ == "__main__":
    main()
