"""A streaming HTTP client on aiohttp.

It sends keys only over https or to this machine, follows redirects only within one origin, uses proxies, and
raises the errors of `tollbridge.types.errors` for everything that aiohttp and the operating system raise.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import ClassVar, Self, TypeVar, cast
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import aiohttp
import truststore
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tollbridge.transport.retry import Timeouts
from tollbridge.types.errors import (
    BridgeError,
    Disconnected,
    NetworkFailed,
    RequestError,
    StreamError,
    TimedOut,
)
from tollbridge.types.urls import is_loopback

REDIRECT_LIMIT = 3
# The size of the buffer of a response. While it is full, the socket is not read and nothing is decompressed.
READ_SIZE = 256 * 1024
# How much of the buffer is decoded at once: at first, at least and at most. It is halved if decoding takes
# longer than a time slice, and doubled if it takes less than half of one.
CHUNK_SIZE, SMALLEST_CHUNK_SIZE, LARGEST_CHUNK_SIZE = 16 * 1024, 4 * 1024, 256 * 1024
# The first chunk is small, so that the beginning of an answer does not wait while aiohttp joins what follows.
FIRST_CHUNK_SIZE = 512
# Seconds that the streams of an event loop may use together before other tasks of the loop run.
TIME_SLICE = 0.002
# If two reads are less than BURST_INTERVAL seconds apart, the next read waits BURST_PAUSE seconds, so that it
# returns more data. No model generates and no person reads that fast.
BURST_INTERVAL = 0.0005
BURST_PAUSE = 0.001
BODY_LIMIT = 64 * 1024 * 1024
# The limit of a streamed response: millions of tokens, and images. The arguments of a tool call are held in
# memory until the call is complete.
STREAM_LIMIT = 512 * 1024 * 1024

Error = TypeVar("Error", bound=BridgeError)


def _mark_permanent(error: Error) -> Error:
    """Mark an error as not worth a retry: it would repeat, or the user has waited long enough."""
    error.transient = False
    return error


@contextmanager
def _translate_errors(url: URL, timeouts: Timeouts) -> Iterator[None]:
    """Raise a `BridgeError` for every error of aiohttp and the operating system."""
    try:
        yield
    except (aiohttp.ClientError, OSError, UnicodeError) as error:
        if isinstance(error, aiohttp.ClientResponseError):
            # The error holds the request headers and with them the key.
            request, headers = error.request_info, CIMultiDictProxy[str](CIMultiDict())
            error.args = ()
            error.request_info = aiohttp.RequestInfo(request.url, request.method, headers, request.real_url)
        raise _translate(error, url, timeouts) from error


def _translate(error: Exception, url: URL, timeouts: Timeouts) -> BridgeError:
    host = url.host or ""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return TimedOut(f"{host} did not accept a connection within {timeouts.connect:g} s.")
        case aiohttp.SocketTimeoutError():
            return _mark_permanent(TimedOut(f"No data from {host} for {timeouts.idle:g} s (idle timeout)."))
        case TimeoutError():
            total = "" if timeouts.total is None else f" ({timeouts.total:g} s)"
            return _mark_permanent(TimedOut(f"The response from {host} exceeded the total timeout{total}."))
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "") or "it does not match"
            message = f"TLS certificate verification failed for {host} ({reason})."
            return _mark_permanent(NetworkFailed(message))
        case aiohttp.ClientSSLError():
            return _mark_permanent(NetworkFailed(f"TLS handshake with {host} failed. Did you mean http://?"))
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return NetworkFailed(f"Could not connect to {host} through the proxy.")
        case aiohttp.ClientConnectorDNSError() | UnicodeError():  # UnicodeError: an invalid host name
            return NetworkFailed(f"Could not resolve host {host}.")
        case aiohttp.ClientConnectorError():
            place = f"[{host}]" if ":" in host else host
            return NetworkFailed(f"Could not connect to {place}:{url.port}: {_reason(error)}.")
        case aiohttp.ClientPayloadError() if "content-encoding" in str(error):
            return StreamError(f"{host} sent a response that could not be decompressed.")
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | ConnectionError():
            return Disconnected(f"{host} closed the connection before the response was complete.")
        case aiohttp.ClientResponseError():
            return StreamError(f"{host} sent an invalid HTTP response.")
        case _:
            return NetworkFailed(f"The connection to {host} failed: {_reason(error)}.")


def _reason(error: Exception) -> str:
    """Return the system's description of an error ("connection refused"); asyncio's names the failed call."""
    cause = getattr(error, "os_error", error)
    number = getattr(cause, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    return (getattr(cause, "strerror", None) or type(cause).__name__).lower()


def _client_closed() -> Disconnected:
    return _mark_permanent(Disconnected("The client was closed before the response was complete."))


class _TimeShare:
    """Divides the time of one event loop between its streams and its other tasks.

    Data that is already in a buffer is read without waiting, so a stream could keep the loop to itself. When
    the streams have used a time slice together, each waits for its turn: one per iteration of the loop.
    """

    # Why this exists: `await content.read()` returns without suspending the task while aiohttp has data, so a
    # loop over a fast or compressed response never lets the event loop run anything else. A gzip body of
    # 391 KB that unpacks to 256 MiB kept it busy for 25 seconds, and Stop has to close a connection within
    # 100 ms.
    #
    # The state is shared by all streams of a loop. `_used` is the time that they have used in the current
    # iteration of the loop. `_waiting` are the streams that wait for a turn, the oldest first. As long as
    # either is not empty, one call of `_start_iteration` is scheduled (`_is_scheduled`); the loop runs it in
    # its next iteration, among the callbacks that were ready by then. It begins a new slice and wakes exactly
    # one stream, which may then use the whole slice.
    #
    # Simpler rules do not bound the time between two iterations: with a slice for each stream, or if all
    # waiting streams were woken at once, 500 streams could use 500 slices, one second, before anything else
    # runs. To suspend after every chunk would cost an iteration per chunk, also if nothing else has to run.
    #
    # A single step cannot be interrupted, so the size of a chunk follows the time that decoding one takes
    # (`HttpResponse.chunks`): halved above one slice, doubled below half of one. It was constant at first,
    # and streams were slower than without slices. What remains atomic is a single frame, see
    # docs/decisions/control-before-data.md.
    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, _TimeShare]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._used = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    @classmethod
    def of_running_loop(cls) -> _TimeShare:
        loop = asyncio.get_running_loop()
        share = cls._of_loops.get(loop)
        if share is None:
            share = cls._of_loops[loop] = cls(loop)
        return share

    async def spend(self, seconds: float) -> None:
        """Add time that a stream has used, and let other tasks run if it is a time slice in total."""
        self._used += seconds
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start_iteration)
        if self._used >= TIME_SLICE:
            turn = self._loop.create_future()
            self._waiting.append(turn)
            await turn

    def _start_iteration(self) -> None:
        self._used, self._is_scheduled = 0.0, False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # it is done if its task was cancelled
                turn.set_result(None)
                break
        if self._waiting:
            self._is_scheduled = True
            self._loop.call_soon(self._start_iteration)


class HttpResponse:
    """A response whose headers have arrived. Its body can be read once."""

    def __init__(self, response: aiohttp.ClientResponse, timeouts: Timeouts) -> None:
        self._response = response
        self._timeouts = timeouts
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives, one chunk per network read, or several if the read returned much."""
        last, remaining, size = 0.0, STREAM_LIMIT, CHUNK_SIZE
        content, share = self._response.content, _TimeShare.of_running_loop()
        with _translate_errors(self._response.url, self._timeouts):
            if first_chunk := await content.read(FIRST_CHUNK_SIZE):
                remaining -= len(first_chunk)
                yield first_chunk
            while chunk := await content.read(size):
                remaining -= len(chunk)
                if remaining < 0:
                    raise self._too_large(STREAM_LIMIT)
                started = time.monotonic()
                yield chunk
                now = time.monotonic()
                if len(chunk) == size or now - started > TIME_SLICE / 4:
                    # More data may be waiting, or decoding takes long.
                    if now - started > TIME_SLICE:
                        size = max(size // 2, SMALLEST_CHUNK_SIZE)
                    elif now - started < TIME_SLICE / 2:
                        size = min(size * 2, LARGEST_CHUNK_SIZE)
                    await share.spend(min(now - last, TIME_SLICE))
                elif now - last < BURST_INTERVAL:
                    await self._pause_reading()
                last = time.monotonic()

    async def _pause_reading(self) -> None:
        """Let data accumulate for a moment: a thousand small reads cost ten times as much as a large one."""
        connection = self._response.connection
        transport = cast(asyncio.ReadTransport | None, connection and connection.transport)
        if transport is None or transport.is_closing():
            return
        transport.pause_reading()
        try:
            await asyncio.sleep(BURST_PAUSE)
        finally:
            if not transport.is_closing():
                transport.resume_reading()

    async def read(self, limit: int = BODY_LIMIT) -> bytes:
        """Return the complete body.

        Raises:
            StreamError: The body is larger than the limit.
        """
        body = await self.read_start(limit + 1)
        if len(body) > limit:
            raise self._too_large(limit)
        return body

    def _too_large(self, limit: int) -> StreamError:
        return StreamError(f"The response from {self._response.url.host} is larger than {limit:,} bytes.")

    async def read_start(self, limit: int) -> bytes:
        """Return at most the first `limit` bytes of the body."""
        body = bytearray()
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= limit:
                    break
        return bytes(body[:limit])


def _end_response(response: aiohttp.ClientResponse) -> None:
    """Release the connection for reuse if the response was read to the end, and close it if it was not."""
    if response.content.at_eof():
        response.release()
    else:
        response.close()


class HttpClient:
    """Sends requests. Leaving the `async with` block of a response closes its connection.

    By default the environment's proxies are used. `allow_http` allows plain http to other machines.
    """

    def __init__(
        self, timeouts: Timeouts | None = None, *, proxy: str | None = None, allow_http: bool = False
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._proxy = proxy
        self._allow_http = allow_http
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._waiting: set[asyncio.Timeout] = set()  # requests whose response has not started
        self._responses: set[aiohttp.ClientResponse] = set()  # responses that are being read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; requests that are running fail. The client cannot be used afterwards."""
        session, self._session = self._session, None
        self._closed = True
        for request in self._waiting:
            request.reschedule(asyncio.get_running_loop().time())
        for response in self._responses:
            response.content.set_exception(_client_closed())
        if session is not None:
            await session.close()

    def deadline(self) -> float | None:
        """Return when the total timeout of a request sent now expires, as a time of `time.monotonic()`."""
        total = self._timeouts.total
        return None if total is None else time.monotonic() + total

    @asynccontextmanager
    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        deadline: float | None = None,
    ) -> AsyncIterator[HttpResponse]:
        """Send one request and yield its response, whatever its status.

        Redirects are followed only within one origin, so that the key is not sent anywhere else. `deadline`
        is that of the first attempt, if this is a retry.

        Raises:
            RequestError: The URL, the proxy or a header is invalid.
            BridgeError: The request failed.
        """
        target = check_url(url, allow_http=self._allow_http)
        _check_headers(headers)
        deadline = self.deadline() if deadline is None else deadline
        response = await self._start_response(method, target, headers, body, deadline)
        self._responses.add(response)
        try:
            yield HttpResponse(response, self._timeouts)
        finally:
            self._responses.discard(response)
            _end_response(response)

    async def _start_response(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        deadline: float | None,
    ) -> aiohttp.ClientResponse:
        """Send a request, follow its redirects, and return the response."""
        connect, idle = self._timeouts.connect, self._timeouts.idle
        for _ in range(REDIRECT_LIMIT + 1):
            # At least 1 ms: 0 would be no limit.
            remaining = None if deadline is None else max(0.001, deadline - time.monotonic())
            with _translate_errors(url, self._timeouts):
                async with self._failing_when_closed():
                    response = await self._get_session().request(
                        method,
                        url,
                        headers=headers,
                        data=body,
                        allow_redirects=False,
                        timeout=aiohttp.ClientTimeout(total=remaining, connect=connect, sock_read=idle),
                        proxy=self._proxy_for(url),
                    )
            if response.status not in (301, 302, 303, 307, 308):
                return response
            _end_response(response)
            url = _redirect_target(response, method, url)
        raise _mark_permanent(
            NetworkFailed(f"{url.host} redirected the request more than {REDIRECT_LIMIT} times.")
        )

    async def sleep(self, seconds: float) -> None:
        """Wait, for example between two attempts.

        Raises:
            Disconnected: The client was closed meanwhile.
        """
        async with self._failing_when_closed():
            await asyncio.sleep(seconds)

    @asynccontextmanager
    async def _failing_when_closed(self) -> AsyncIterator[None]:
        """Interrupt the block when the client is closed. aiohttp would let it wait for the response."""
        interruption = asyncio.timeout(None)
        try:
            async with interruption:
                self._waiting.add(interruption)
                yield
        except TimeoutError:
            if not interruption.expired():
                raise  # another timeout, within the block
            raise _client_closed() from None
        finally:
            self._waiting.discard(interruption)

    def _get_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RequestError("This client is closed. Create a new one.")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit: every request in progress needs a connection, and waiting for one would count as
                # connecting.
                connector=aiohttp.TCPConnector(ssl=truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_SIZE,
                auto_decompress=True,
            )
        return self._session

    def proxy_host(self, url: str) -> str | None:
        """Return host and port of the proxy for a URL, without the user name and password."""
        proxy = self._proxy_for(check_url(url, allow_http=self._allow_http))
        return None if proxy is None else URL(proxy).authority.rpartition("@")[2]

    def _proxy_for(self, url: URL) -> str | None:
        """Return the proxy of the caller or of the environment; `None` for requests to this machine."""
        host = url.host or ""
        if is_loopback(host) or proxy_bypass(f"[{host}]" if ":" in host else f"{host}:{url.port}"):
            return None
        proxy = self._proxy or getproxies().get(url.scheme) or getproxies().get("all")
        if not proxy:
            return None
        scheme, separator, _ = proxy.rpartition("://")
        if separator and scheme.lower() not in ("http", "https"):
            raise RequestError(f"The proxy URL must start with http:// or https://, not {scheme}://.")
        return proxy if separator else f"http://{proxy}"  # as most programs do


@lru_cache(maxsize=64)
def check_url(url: str, *, allow_http: bool = False) -> URL:
    """Parse a URL and check that a key may be sent there: https, or plain http to this machine.

    Raises:
        RequestError: The URL is invalid, uses plain http to another machine, or contains a password.
    """
    try:
        target = URL(url)
    except (ValueError, TypeError):
        target = URL()
    if target.scheme not in ("http", "https") or not target.host:
        # The value is not quoted: it may be a key that was entered as the URL.
        raise RequestError("Invalid gateway URL. Expected something like https://host/v1.")
    if target.scheme == "http" and not allow_http and not is_loopback(target.host):
        raise RequestError(
            f"Unencrypted HTTP to {target.host} is not allowed. "
            "Use https, or set `allow_http` (command line: --allow-http; VS Code: tollbridge.allowHttp)."
        )
    if target.user or target.password:
        raise RequestError("A gateway's URL must not contain a user name or a password.")
    return target


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not name.isascii() or not f"{name}{value}".isprintable():
            # Neither name nor value is quoted: the value may be a key.
            raise RequestError("A header contains a line break or another invalid character.")


def _redirect_target(response: aiohttp.ClientResponse, method: str, url: URL) -> URL:
    """Return the URL to which a response redirects.

    Raises:
        NetworkFailed: The target has another origin, to which the key must not be sent, or the redirect
            would drop the body of the request.
    """
    status = response.status
    target = _resolve_location(url, response.headers.get("location", ""))
    if target is None:
        problem = "to an invalid URL"
    elif target.origin() != url.origin():
        problem = f"to another origin ({target.origin()}), to which the API key is not sent"
    elif status in (307, 308) or method == "GET":
        return target
    else:
        problem = f"to {target.path} with HTTP {status}; the request body would be dropped"
    raise _mark_permanent(
        NetworkFailed(f"{url.host} redirected {problem}. Update the base URL.", status=status)
    )


def _resolve_location(url: URL, location: str) -> URL | None:
    try:
        # A user name or password in the location is dropped: it would replace the key, and appear in errors.
        target = url.join(URL(location)).with_user(None)
        return target if location and target.origin() else None
    except ValueError:
        return None
