"""One streaming HTTP client on aiohttp."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar, cast
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import truststore
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tollbridge.types.errors import (
    BridgeError,
    Disconnected,
    NetworkFailed,
    RequestError,
    StreamError,
    TimedOut,
)
from tollbridge.types.urls import is_loopback

# SECTION What aiohttp and the operating system raise, as errors of ours: made here, and nowhere else.

Error = TypeVar("Error", bound=BridgeError)


def is_permanent(error: Error) -> Error:
    """One that asking again would only repeat, or that has used up all of a person's patience."""
    error.transient = False
    return error


class translate_error:
    """Turns what aiohttp and the operating system raise into errors of ours."""

    def __init__(self, host: str) -> None:
        self._host = host

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, aiohttp.ClientResponseError):
            # It holds the request's headers, and so the key.
            error.args, error.request_info = (), _without_headers(error.request_info)
        if isinstance(error, (aiohttp.ClientError, OSError, TimeoutError, UnicodeError)):
            raise self._named(error) from error

    def _named(self, error: Exception) -> BridgeError:
        host = self._host
        match error:
            case aiohttp.ConnectionTimeoutError():
                return TimedOut(f"{host} did not accept a connection in time.")
            case aiohttp.SocketTimeoutError():
                return is_permanent(TimedOut(f"{host} went silent: nothing came for the whole idle time."))
            case TimeoutError():
                return is_permanent(TimedOut(f"The answer of {host} took longer than the time it was given."))
            case aiohttp.ClientConnectorCertificateError():
                why = getattr(error.certificate_error, "verify_message", "") or "it does not match"
                said = f"{host} could not prove who it is: its TLS certificate is not trusted ({why})."
                return is_permanent(NetworkFailed(said))
            case aiohttp.ClientSSLError():
                said = f"{host} does not speak TLS as it should. Is it an http:// address?"
                return is_permanent(NetworkFailed(said))
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
                return NetworkFailed(f"The proxy on the way to {host} could not be used.")
            case aiohttp.ClientConnectorDNSError() | UnicodeError():  # a name too long, or with two dots
                return NetworkFailed(f"The name {host} could not be found.")
            case aiohttp.ClientConnectorError():
                return NetworkFailed(f"No connection to {host} could be made: {_reason(error)}.")
            case aiohttp.ClientPayloadError() if "content-encoding" in str(error):
                return StreamError(f"{host} sent a compressed answer that cannot be unpacked.")
            case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | ConnectionError():
                return Disconnected(f"{host} closed the connection before the answer was complete.")
            case aiohttp.ClientResponseError():
                return StreamError(f"{host} did not answer in HTTP.")
            case _:
                return NetworkFailed(f"The connection to {host} failed: {_reason(error)}.")


def _without_headers(request: aiohttp.RequestInfo) -> aiohttp.RequestInfo:
    nothing: CIMultiDict[str] = CIMultiDict()
    return aiohttp.RequestInfo(request.url, request.method, CIMultiDictProxy(nothing), request.real_url)


def _reason(error: Exception) -> str:
    """The system's own word for it ("connection refused"); asyncio's says which call failed."""
    cause = getattr(error, "os_error", error)
    number = getattr(cause, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    return (getattr(cause, "strerror", None) or type(cause).__name__).lower()


# SECTION One streaming HTTP client on aiohttp.

REDIRECT_LIMIT = 3
# Read from the socket at once; large reads are what makes a fast stream cheap.
READ_SIZE = 256 * 1024
# Two reads closer together than this (seconds) are a flood, which no model and no eye keeps up with. Then the
# next read waits a moment, so that it finds more.
FLOOD = 0.0005
GATHER = 0.001
BODY_LIMIT = 64 * 1024 * 1024
# A streamed answer: millions of tokens, and pictures. The arguments of a call are held until it is whole.
STREAM_LIMIT = 512 * 1024 * 1024
CONNECTION_LIMIT = 200


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. `idle` is how long a gateway may be silent, before its first byte or between two; models that
    reason may be silent for minutes. `total` bounds the whole answer, with every attempt at it; `None` is no
    bound."""

    connect: float = 15.0
    idle: float | None = 300.0
    total: float | None = None


class HttpResponse:
    """An answer whose headers have come. Its body is read once, by `chunks` or by `read`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it arrives, one piece a network read."""
        last, room = 0.0, STREAM_LIMIT
        with translate_error(str(self._response.url.host)):
            async for chunk in self._response.content.iter_any():
                room -= len(chunk)
                if room < 0:
                    raise self._too_large(STREAM_LIMIT)
                yield chunk
                now = time.monotonic()
                if now - last < FLOOD:
                    await self._gather()
                last = time.monotonic()

    async def _gather(self) -> None:
        """Let a flood run up for a moment: a thousand small reads cost ten times what one large read does."""
        connection = self._response.connection
        transport = cast(asyncio.ReadTransport | None, connection and connection.transport)
        if transport is None or transport.is_closing():
            return
        transport.pause_reading()
        try:
            await asyncio.sleep(GATHER)
        finally:
            if not transport.is_closing():
                transport.resume_reading()

    async def read(self, limit: int = BODY_LIMIT) -> bytes:
        """The whole body; one that is larger than the limit is an error."""
        body = await self.start(limit + 1)
        if len(body) > limit:
            raise self._too_large(limit)
        return body

    def _too_large(self, limit: int) -> StreamError:
        return StreamError(f"The answer of {self._response.url.host} is larger than {limit:,} bytes.")

    async def start(self, limit: int) -> bytes:
        """The first bytes of the body: all that anyone wants of an error page."""
        body = bytearray()
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= limit:
                    break
        return bytes(body[:limit])


class HttpClient:
    """Sends requests and hangs up when the block around a reply is left. Holds no key."""

    def __init__(
        self, timeouts: Timeouts | None = None, *, proxy: str | None = None, allow_http: bool = False
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._proxy = proxy
        self._allow_http = allow_http
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        session, self._session = self._session, None
        self._closed = True
        if session is not None:
            await session.close()

    def deadline(self) -> float | None:
        """When an answer that is asked for now must have ended, by `time.monotonic()`."""
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
        until: float | None = None,
    ) -> AsyncIterator[HttpResponse]:
        """The reply to one request. Redirects are followed within one origin only, so no key leaves it.

        `until` is the deadline where this is not the first attempt."""
        target = check_url(url, allow_http=self._allow_http)
        until = self.deadline() if until is None else until
        for _ in range(REDIRECT_LIMIT + 1):
            async with self._one(method, target, headers, body, self._left(until)) as response:
                moved = _moved(response, method, target)
                if moved is None:
                    yield HttpResponse(response)
                    return
                target = moved
        raise is_permanent(
            NetworkFailed(f"{target.host} redirected the request more than {REDIRECT_LIMIT} times.")
        )

    def _left(self, until: float | None) -> aiohttp.ClientTimeout:
        times = self._timeouts
        left = None if until is None else max(0.001, until - time.monotonic())  # 0 would be no bound
        return aiohttp.ClientTimeout(total=left, connect=times.connect, sock_read=times.idle)

    @asynccontextmanager
    async def _one(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        times: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        _check_headers(headers)
        with translate_error(url.host or ""):
            response = await self._opened().request(
                method,
                url,
                headers=headers,
                data=body,
                allow_redirects=False,
                timeout=times,
                proxy=self._proxy_for(url),
            )
        try:
            yield response
        finally:
            # Only a connection whose answer was read to its end is used again; any other is closed now.
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RequestError("This client is closed. Make a new one for new requests.")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limit=CONNECTION_LIMIT
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_SIZE,
                auto_decompress=True,
            )
        return self._session

    def proxy_host(self, url: str) -> str | None:
        """The proxy for a URL, without what else its address may hold."""
        proxy = self._proxy_for(check_url(url, allow_http=self._allow_http))
        return None if proxy is None else URL(proxy).authority.rpartition("@")[2]

    def _proxy_for(self, url: URL) -> str | None:
        """The proxy of the caller or of the environment; never one for this very machine."""
        host = url.host or ""
        if is_loopback(host) or proxy_bypass(f"[{host}]" if ":" in host else f"{host}:{url.port}"):
            return None
        proxy = self._proxy or getproxies().get(url.scheme) or getproxies().get("all")
        if not proxy:
            return None
        scheme, found, _ = proxy.rpartition("://")
        if found and scheme.lower() not in ("http", "https"):
            raise RequestError(f"The proxy's address must begin with http:// or https://, not {scheme}://.")
        return proxy if found else f"http://{proxy}"  # as most programs read it


def check_url(url: str, *, allow_http: bool = False) -> URL:
    """The URL, if a key may travel there: https, or plain http to this very machine."""
    try:
        target = URL(url)
    except (ValueError, TypeError):
        target = URL()
    if target.scheme not in ("http", "https") or not target.host:
        # Not quoted: what stands in the place of a URL may be a key.
        raise RequestError("The gateway's URL is none: it must look like https://host/v1.")
    if target.scheme == "http" and not allow_http and not is_loopback(target.host):
        raise RequestError(
            f"{target.host} is addressed by plain http, where anyone on the way could read the key. "
            "Use https, or allow plain http if you must."
        )
    if target.user or target.password:
        raise RequestError("A gateway's URL must not contain a user name or a password.")
    return target


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not name.isascii() or not f"{name}{value}".isprintable():
            # Neither is quoted: the value may be a key.
            raise RequestError("A header holds a line break or another character that cannot be sent.")


def _moved(response: aiohttp.ClientResponse, method: str, asked: URL) -> URL | None:
    """Where a redirect leads. Anywhere but to the same origin is an error: the key stays at home."""
    status = response.status
    if status not in (301, 302, 303, 307, 308):
        return None
    target = _joined(asked, response.headers.get("location", ""))
    if target is None or target.origin() != asked.origin():
        where = target.host if target is not None else "nowhere that can be reached"
        why = f"to {where}, and the key does not travel there"
    elif status in (307, 308) or method == "GET":
        return target
    else:  # by these, a question would lose its body
        why = f"to {target.path} with HTTP {status}, by which the question would be lost"
    raise is_permanent(
        NetworkFailed(
            f"{asked.host} redirected the request {why}. Set the base URL to where the gateway really is.",
            status=status,
        )
    )


def _joined(asked: URL, location: str) -> URL | None:
    try:
        target = asked.join(URL(location))
        return target if location and target.origin() else None
    except ValueError:
        return None
