"""The process that holds the model: `python -m tollbridge.local.server`.

It lives in a process of its own so that a crash in native code cannot take its user along. It writes one
line of JSON to standard output (where it listens, or why it does not) and ends when standard input does:
the other end of that pipe closes whenever the parent ends, however it ends.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading

import msgspec

from tollbridge.local.process import ServerFailed, ServerReady

# SECTION The process that holds the model: `python -m tollbridge.local.server`.
#
# It lives in a process of its own so that a crash in native code cannot take its user along. It writes one
# line of JSON to standard output (where it listens, or why it does not) and ends when standard input does:
# the other end of that pipe closes whenever the parent ends, however it ends.


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    # The announcement keeps the real standard output; whatever native code prints goes to the log.
    announce = os.dup(1)
    os.dup2(2, 1)
    parent = threading.Thread(target=_end_with_parent, daemon=True)
    parent.start()
    try:
        server = _serve(given)
    except (ImportError, RuntimeError) as error:
        os.write(announce, msgspec.json.encode(ServerFailed(f"{type(error).__name__}: {error}")) + b"\n")
        return 1
    os.write(announce, msgspec.json.encode(ServerReady(server.listening_address)) + b"\n")
    parent.join()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tollbridge.local.server")
    parser.add_argument("--model", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    return parser


def _serve(given: argparse.Namespace) -> _Server:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.model_alias = {given.id}
    params.n_ctx = given.context
    params.port = given.port
    params.n_parallel = 1
    # Its threads wait for each other by spinning: with one for every core, a second busy program on the
    # machine slows it down fifteenfold. Half of them leaves room.
    threads = max(1, (os.cpu_count() or 2) // 2)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.ui = False
    server: _Server = xllamacpp.Server(params)
    return server


class _Server:
    """What we use of `xllamacpp.Server`, which has no types of its own."""

    listening_address: str


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    # Not sys.exit: native threads may be in the middle of an answer that nobody waits for any more.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
