"""The server process of a local model: `python -m tollbridge.local.server`.

The model runs in a separate process, so that a crash in native code does not end the program that uses it.
The process writes one line of JSON to standard output: its address, or why it cannot start. It exits when
standard input is closed, which happens whenever the parent exits, even if the parent is killed.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading

import msgspec

from tollbridge.local.process import ServerFailed, ServerReady


def main(arguments: list[str] | None = None) -> int:
    options = _make_parser().parse_args(arguments)
    # Keep standard output for the announcement. The output of native code goes to the log.
    announcement_fd = os.dup(1)
    os.dup2(2, 1)
    watcher = threading.Thread(target=_exit_with_parent, daemon=True)
    watcher.start()
    try:
        server = _serve(options)
    except (ImportError, RuntimeError) as error:
        os.write(
            announcement_fd, msgspec.json.encode(ServerFailed(f"{type(error).__name__}: {error}")) + b"\n"
        )
        return 1
    os.write(announcement_fd, msgspec.json.encode(ServerReady(server.listening_address)) + b"\n")
    watcher.join()
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tollbridge.local.server")
    parser.add_argument("--model", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    return parser


def _serve(options: argparse.Namespace) -> _Server:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.id}
    params.n_ctx = options.context
    params.port = options.port
    params.n_parallel = 1
    # The threads wait for each other in busy loops. With one thread per core, another busy program makes the
    # model 15 times slower, so use half of the cores.
    threads = max(1, (os.cpu_count() or 2) // 2)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.ui = False
    server: _Server = xllamacpp.Server(params)
    return server


class _Server:
    """The part of `xllamacpp.Server` that is used here; the package has no types."""

    listening_address: str


def _exit_with_parent() -> None:
    while os.read(0, 4096):
        pass
    # Not sys.exit, which would wait for native threads that may still create an answer.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
