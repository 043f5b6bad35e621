"""What every client does, whatever its protocol: ask, stream, try again, and keep the key to itself."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, TypeVar
from urllib.parse import urlsplit

import msgspec

from tollbridge.protocols.detect import Decoder, decoder_for
from tollbridge.protocols.errors import ERROR_BODY_LIMIT as REFUSAL_LIMIT
from tollbridge.protocols.errors import read_error_response
from tollbridge.protocols.model_list import Endpoints
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError, RequestError, hide_key
from tollbridge.types.events import Event, split_failure
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Model
from tollbridge.types.text import is_valid_key, write_valid_json
from tollbridge.types.urls import USERINFO_ERROR, has_userinfo

if TYPE_CHECKING:
    from tollbridge.transport.http import HttpClient, HttpResponse, Timeouts


# SECTION One who sees what travels: every request, every answer, every byte as it came, and every failed attempt.


class Observer:
    """Looks away. One that records looks; it must not raise, and must not keep the key in the headers."""

    def asked(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """A request is about to be sent; once for each attempt."""

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer has begun."""

    def received(self, chunk: bytes) -> None:
        """A piece of the answer's body, unpacked, as one read gave it."""

    def waiting(self, error: BridgeError, seconds: float) -> None:
        """An attempt failed, and after so long the next one is made."""

    def events(self, batch: list[Event]) -> None:
        """The events of one network read, as the caller of the turn gets them."""

    async def end(self, result: object | None, error: BaseException | None) -> None:
        """The end of the turn: its result, or the exception that ended it."""


# SECTION What every client does, whatever its protocol: ask, stream, try again, and keep the key to itself.

Read = TypeVar("Read")
log = logging.getLogger(__name__)


class EncodedRequest(msgspec.Struct, frozen=True):
    """What is sent to a gateway for one turn; `headers` besides those of every request."""

    url: str
    body: bytes
    headers: Mapping[str, str] = {}


class ClientOptions(TypedDict, total=False):
    """What every client takes besides an address and a key."""

    timeouts: Timeouts | None
    retries: RetryPolicy | None
    proxy: str | None
    allow_http: bool
    headers: Mapping[str, str] | None


class GatewayClient(ABC):
    """Talks to one base URL. A key is given for all calls or for one, and is kept nowhere else."""

    protocol: ClassVar[str]
    # Where it talks to unless told otherwise.
    home: ClassVar[str]
    # What its address must not hold, because paths are added to it.
    forbidden: ClassVar[str] = "?#"

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeouts: Timeouts | None = None,
        retries: RetryPolicy | None = None,
        proxy: str | None = None,
        allow_http: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if base_url is not None and (not base_url.strip() or set(self.forbidden) & set(base_url)):
            raise RequestError("A base URL is an address like https://host/v1, with nothing after the path.")
        if base_url is not None and has_userinfo(base_url):
            raise RequestError(USERINFO_ERROR)  # here, before it is written down anywhere
        self._take_address(base_url or self.home)
        self._api_key = api_key
        self._timeouts = timeouts
        self._retries = retries or RetryPolicy()
        self._proxy = proxy
        self._allow_http = allow_http
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._chance = random.Random()  # noqa: S311 - only spreads retries
        self._http: HttpClient | None = None
        self._watches: tuple[Observer, ...] = ()

    def _take_address(self, url: str) -> None:
        """Takes an address. `base_url` is what others see and keep of it."""
        self.base_url = url.rstrip("/")

    def __repr__(self) -> str:
        # What stands in the place of a URL may be a key, and a URL may hold a password.
        place = urlsplit(self.base_url)
        known = place.scheme in ("http", "https") and "@" not in place.netloc
        return f"{type(self).__name__}({self.base_url if known else 'no URL'})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def watched(self, watch: Observer) -> Self:
        """The same client under one more pair of eyes, for one turn. It shares the connections and is not
        closed."""
        self._opened()
        twin = copy(self)
        twin._watches = (*self._watches, watch)
        return twin

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def stream(
        self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None
    ) -> AsyncGenerator[Event]:
        """The events of the answer as they come. A failure is raised after everything that came before it.

        Leaving the loop early hangs up; wrap the call in `contextlib.aclosing` to have it done at once.
        """
        async with aclosing(self.batches(request, api_key=api_key)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(
        self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None
    ) -> AsyncGenerator[list[Event]]:
        """The same, one list a network read: what arrived together is handed on together."""
        question = self._question(request)
        key, until = self._key(api_key), self._opened().deadline()
        failed = 0
        while True:
            told = False
            try:
                async with aclosing(self._attempt(question, key, until)) as batches:
                    async for batch in batches:
                        told = True
                        yield batch
                return
            except BridgeError as error:
                hide_key(error, key)
                failed += 1
                wait = None if told else self._wait(error, failed, until)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """One request as it is, and its reply: not read, not tried again, whatever its status."""
        sent = {**self._request_headers(self._key(api_key)), **(headers or {})}
        return self._opened().send(method, self.base_url + path, sent, body)

    def worded(self, request: ChatRequest) -> bytes:
        """The body in which a request would be sent."""
        return self._question(request).body

    def told(self, error: BridgeError, reply: HttpResponse | None = None) -> BridgeError:
        """The error with what its reply says of it, and without the key."""
        if reply is not None:
            _told(error, reply)
        hide_key(error, self._api_key)
        return error

    @property
    def has_key(self) -> bool:
        return bool(self._api_key)

    def proxy(self) -> str | None:
        """The proxy on the way, by its host and port alone: an address may hold a password."""
        return self._opened().proxy_host(self.base_url)

    @abstractmethod
    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """The models the gateway offers, of every type."""

    async def endpoints(self, model: str, *, api_key: str | None = None) -> Endpoints | None:  # noqa: ARG002
        """What the gateway says of the providers behind a model; `None` where the protocol cannot ask."""
        return None

    @abstractmethod
    def _question(self, request: ChatRequest | Mapping[str, Any]) -> EncodedRequest:
        """The request in the words of this client's protocol."""

    async def _attempt(
        self, question: EncodedRequest, key: str | None, until: float | None
    ) -> AsyncGenerator[list[Event]]:
        headers = {**self._request_headers(key), **question.headers}
        for watch in self._watches:
            watch.asked(self.protocol, question.url.partition("?")[0], headers, question.body)
        async with self._opened().send("POST", question.url, headers, question.body, until=until) as reply:
            for watch in self._watches:
                watch.answered(reply.status, reply.headers)
            with _logged(decoder_for(self.protocol, reply.status, reply.headers)) as decoder:
                async with aclosing(reply.chunks()) as chunks:
                    async for chunk in chunks:
                        for watch in self._watches:
                            watch.received(chunk)
                        batch, failure = split_failure(decoder.feed(chunk))
                        if batch:
                            yield batch
                        if failure is not None:
                            raise _told(failure, reply)
                        if decoder.over:
                            return
                batch, failure = split_failure(decoder.close())
            if batch:
                yield batch
            if failure is not None:
                raise _told(failure, reply)

    def _wait(self, error: BridgeError, failed: int, until: float | None) -> float | None:
        """Seconds until the next attempt, which is then announced; `None` where there is none."""
        wait = self._retries.wait(error, failed, self._chance)
        if wait is None or (until is not None and time.monotonic() + wait >= until):
            return None
        log.info(
            "Attempt %d failed (%s, status %s); the next is in %.1f s.",
            *(failed, error.kind, error.status, wait),
        )
        for watch in self._watches:
            watch.waiting(error, wait)
        return wait

    async def _call(
        self, method: str, path: str, body: bytes | None, api_key: str | None, read: Callable[[bytes], Read]
    ) -> Read:
        """What `read` makes of the whole answer."""
        key, until = self._key(api_key), self._opened().deadline()
        failed = 0
        while True:
            try:
                async with self._opened().send(
                    method, self.base_url + path, self._request_headers(key), body, until=until
                ) as reply:
                    if reply.status >= 400:
                        page = await reply.start(REFUSAL_LIMIT)
                        raise _told(read_error_response(reply.status, reply.headers, page), reply)
                    data = await reply.read()
                    try:
                        return read(data)
                    except BridgeError as error:
                        raise _told(error, reply) from None
            except BridgeError as error:
                hide_key(error, key)
                failed += 1
                wait = self._wait(error, failed, until)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    def _opened(self) -> HttpClient:
        if self._http is None:
            # Not at the top: loading it costs more than everything an editor asks for first.
            from tollbridge.transport.http import HttpClient

            self._http = HttpClient(self._timeouts, proxy=self._proxy, allow_http=self._allow_http)
        return self._http

    def _key(self, given: str | None) -> str | None:
        """The key of one call. An empty one is none, and not the client's own."""
        return self._api_key if given is None else given

    def _request_headers(self, key: str | None) -> dict[str, str]:
        headers = {
            "accept": "text/event-stream, application/json",
            "content-type": "application/json",
            "user-agent": "tollbridge",
            **self._headers,
        }
        if key:
            if not is_valid_key(key):
                raise RequestError("The API key contains characters that no key has. Was it pasted whole?")
            headers["authorization"] = f"Bearer {key}"
        return headers


def encode_body(body: Mapping[str, Any]) -> bytes:
    """A body as it is sent."""
    try:
        return write_valid_json(body).encode()
    except ValueError as error:
        raise RequestError(f"The request cannot be sent: {error}.") from None


def _told(error: BridgeError, reply: HttpResponse) -> BridgeError:
    error.status = error.status or (reply.status if reply.status >= 400 else None)
    error.request_id = error.request_id or reply.headers.get("x-request-id")
    return error


@contextmanager
def _logged(decoder: Decoder) -> Iterator[Decoder]:
    """Says at the end what was not understood; one line, for whoever looks into a gateway's novelties."""
    try:
        yield decoder
    finally:
        if decoder.unknown:
            counts = ", ".join(f"{name[:80]!r} {count}" for name, count in decoder.unknown.items())
            log.debug("Not understood, and left out of the answer: %s.", counts)
