"""What aiohttp and the operating system raise, as errors of ours: made here, and nowhere else."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TypeVar

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy

from tollbridge.core.errors import BridgeError, Disconnected, NetworkFailed, StreamError, TimedOut

Error = TypeVar("Error", bound=BridgeError)


def lasting(error: Error) -> Error:
    """One that asking again would only repeat, or that has used up all of a person's patience."""
    error.transient = False
    return error


class translated:
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
                return lasting(TimedOut(f"{host} went silent: nothing came for the whole idle time."))
            case TimeoutError():
                return lasting(TimedOut(f"The answer of {host} took longer than the time it was given."))
            case aiohttp.ClientConnectorCertificateError():
                why = getattr(error.certificate_error, "verify_message", "") or "it does not match"
                said = f"{host} could not prove who it is: its TLS certificate is not trusted ({why})."
                return lasting(NetworkFailed(said))
            case aiohttp.ClientSSLError():
                said = f"{host} does not speak TLS as it should. Is it an http:// address?"
                return lasting(NetworkFailed(said))
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
