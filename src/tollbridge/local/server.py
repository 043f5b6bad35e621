"""The server process of a local model: `python -m tollbridge.local.server`.

The model runs in a separate process, so that a crash in native code does not end the program that uses it.
The process writes one line of JSON to standard output: its address, or why it cannot start. It exits when
standard input is closed, which happens whenever the parent exits, even if the parent is killed.

llama.cpp does not check the `Host` header, so a web page could use the model by DNS rebinding. Therefore it
listens on a port of its own and requires a random key, and `forward_requests`, on the public port, passes on
the requests that do not come from a web page.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import secrets
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from tollbridge.local.process import PORT_IN_USE, Announcement, ServerFailed, ServerReady
from tollbridge.types.urls import explain_refusal

HOST = "127.0.0.1"
MAX_BODY = 64 * 1024 * 1024
# Headers that belong to one connection, and those that `_forward_request` or aiohttp sets.
_OWN_HEADERS = frozenset(
    {"authorization", "connection", "content-length", "host", "keep-alive", "transfer-encoding"}
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tollbridge.local.server")
    for name, kind in (("--model", str), ("--id", str), ("--context", int), ("--port", int)):
        parser.add_argument(name, type=kind, required=True)
    options = parser.parse_args(arguments)
    # Keep standard output for the announcement. The output of native code goes to the log.
    announcement_fd = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_exit_with_parent, daemon=True).start()

    def announce(announcement: Announcement) -> None:
        os.write(announcement_fd, msgspec.json.encode(announcement) + b"\n")

    key = secrets.token_hex(32)
    try:
        server = _serve(options, key)
    except (ImportError, RuntimeError) as error:
        announce(ServerFailed(f"{type(error).__name__}: {error}"))
        return 1

    async def listen() -> None:
        async with forward_requests(server.listening_address, key, options.port) as address:
            announce(ServerReady(address))
            await asyncio.Event().wait()

    try:
        asyncio.run(listen())
    except OSError as error:
        reason = PORT_IN_USE if error.errno == errno.EADDRINUSE else f"OSError: {error.strerror}"
        announce(ServerFailed(reason))
    return 1


def _serve(options: argparse.Namespace, key: str) -> Any:
    """Start the server and return it. Its package has no types."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.id}
    params.n_ctx = options.context
    params.port = 0
    params.api_keys = [key]
    params.n_parallel = 1
    # The threads wait for each other in busy loops. With one thread per core, another busy program makes the
    # model 15 times slower, so use half of the cores.
    threads = max(1, (os.cpu_count() or 2) // 2)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.ui = False
    return xllamacpp.Server(params)


@asynccontextmanager
async def forward_requests(target: str, key: str, port: int) -> AsyncIterator[str]:
    """Pass requests on to the server at `target`, unless they come from a web page. Yields the address.

    `key` is the key of the server; callers need none. Raises OSError if the port cannot be opened.
    """
    async with aiohttp.ClientSession(
        auto_decompress=False, timeout=aiohttp.ClientTimeout(), connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        app = web.Application(client_max_size=MAX_BODY)
        handler = partial(_forward_request, session=session, target=target, key=key)
        app.router.add_route("*", "/{path:.*}", handler)
        # Handlers are cancelled when the client disconnects, which stops the answer of the model.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, port).start()
            yield f"http://{HOST}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def _forward_request(
    request: web.Request, session: aiohttp.ClientSession, target: str, key: str
) -> web.StreamResponse:
    problem = explain_refusal(request.headers)
    if problem is not None:
        error = {"message": problem, "type": "forbidden", "code": "foreign_request"}
        return web.json_response({"error": error}, status=403)
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS}
    headers["Authorization"] = f"Bearer {key}"
    headers.pop("Origin", None)
    try:
        async with session.request(
            request.method,
            f"{target}{request.rel_url.raw_path_qs}",
            headers=headers,
            data=await request.read() or None,
            allow_redirects=False,
        ) as reply:
            return await _copy(request, reply)
    except aiohttp.ClientError:
        return web.json_response({"error": {"message": "The local model stopped."}}, status=502)


async def _copy(request: web.Request, reply: aiohttp.ClientResponse) -> web.StreamResponse:
    """Send the response of the server as it arrives."""
    headers = {
        name: value
        for name, value in reply.headers.items()
        if name.lower() not in _OWN_HEADERS and not name.lower().startswith("access-control-")
    }
    response = web.StreamResponse(status=reply.status, reason=reply.reason, headers=headers)
    await response.prepare(request)
    async for chunk in reply.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


def _exit_with_parent() -> None:
    while os.read(0, 4096):
        pass
    # Not sys.exit, which would wait for native threads that may still create an answer.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
