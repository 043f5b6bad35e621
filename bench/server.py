"""A server process that replays a stream to every client, one event per write, as fast as possible."""

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
    """Read one request with its body. Return whether there was one, or the client has disconnected."""
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
    events = frames()
    stream = [chunk(frame) for frame in events]
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], len(events), flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, stream), daemon=True).start()


if __name__ == "__main__":
    main()
