"""The client of a gateway: sending, streaming, retries, and redaction of the key in errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from tollbridge.answer import Answer
from tollbridge.clients.observer import Observer, Observers
from tollbridge.clients.retries import Attempts
from tollbridge.protocols.billing import Credits, Generation, read_credits, read_generation, read_token_count
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.errors import ERROR_BODY_LIMIT, read_error_response
from tollbridge.protocols.model_list import Endpoints, read_endpoints
from tollbridge.protocols.protocol import Protocol
from tollbridge.protocols.stream import decode_body
from tollbridge.transport.loading import load_http_client
from tollbridge.transport.retry import RetryPolicy, Timeouts
from tollbridge.types.errors import BridgeError, NotFound, RequestError, hide_key
from tollbridge.types.events import Event, split_failure
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Model
from tollbridge.types.text import is_valid_key, write_valid_json
from tollbridge.types.urls import USERINFO_ERROR, has_userinfo

if TYPE_CHECKING:
    from tollbridge.transport.http import HttpClient, HttpResponse


Result = TypeVar("Result")
log = logging.getLogger(__name__)


class Limits(msgspec.Struct, frozen=True):
    """The limits of requests that are not streamed.

    Attributes:
        thread_size: A larger response, such as a long model list, is decoded on another thread (bytes).
        pages: The most pages of a model list, in case a server never stops paging.
    """

    thread_size: int = 256 * 1024
    pages: int = 20


LIMITS = Limits()


class ClientOptions(TypedDict, total=False):
    """The keyword arguments that every client accepts besides the URL and the key."""

    timeouts: Timeouts | None
    retries: RetryPolicy | None
    proxy: str | None
    allow_http: bool
    headers: Mapping[str, str] | None
    secret_headers: Mapping[str, str] | None


class PassedResponse:
    """A response that is passed on to the caller. `error` is set if its status is 400 or more."""

    def __init__(self, response: HttpResponse, observers: Observers) -> None:
        self.status = response.status
        self.headers = response.headers
        self.error: BridgeError | None = None
        self._response = response
        self._observers = observers
        self._body: bytes | None = None

    async def read_error(self) -> BridgeError:
        """Read the body of an error response."""
        self._body = await self._response.read_start(ERROR_BODY_LIMIT)
        for observe in self._observers.data:
            observe(self._body)
        error = read_error_response(self.status, self.headers, self._body)
        self.error = _add_response_details(error, self._response)
        return self.error

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives."""
        if self._body is not None:
            yield self._body
            return
        async with aclosing(self._response.chunks()) as chunks:
            async for chunk in chunks:
                for observe in self._observers.data:
                    observe(chunk)
                yield chunk


class GatewayClient:
    """A client for a gateway at one base URL, in any protocol.

    `tollbridge` has a class per protocol, for programs that use one.

    Args:
        protocol: The protocol of the gateway.
        base_url: The URL of the gateway; the default of the protocol if omitted.
        api_key: The key for all calls. Each call can pass another one.
        auth: How the key is sent, if the protocol leaves a choice (`Protocol.auth`).
        timeouts: The timeouts of every request.
        retries: The retry policy.
        proxy: The URL of a proxy. By default the environment's proxies are used.
        allow_http: Whether to allow plain http to other machines.
        headers: Headers to add to every request.
        secret_headers: The same, for headers whose values are redacted in errors and recordings.

    Raises:
        RequestError: The base URL is invalid.
    """

    def __init__(
        self,
        protocol: Protocol,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        auth: str | None = None,
        timeouts: Timeouts | None = None,
        retries: RetryPolicy | None = None,
        proxy: str | None = None,
        allow_http: bool = False,
        headers: Mapping[str, str] | None = None,
        secret_headers: Mapping[str, str] | None = None,
    ) -> None:
        # Paths are appended to the base URL.
        forbidden = "#" if protocol.keeps_query else "?#"
        if base_url is not None and (not base_url.strip() or set(forbidden) & set(base_url)):
            raise RequestError(
                "Invalid base URL. Expected something like https://host/v1, without a query or fragment."
            )
        if base_url is not None and has_userinfo(base_url):
            raise RequestError(USERINFO_ERROR)  # here, before the URL is logged or stored
        self.protocol = protocol
        url = base_url or protocol.base_url
        if protocol.keeps_query:
            # The query can contain a key. It is sent, but not part of `base_url`, which is shown and stored.
            self.base_url, separator, query = url.partition("?")
            self._query = separator + query
        else:
            self.base_url, self._query = url.rstrip("/"), ""
        if auth is not None and auth not in protocol.auth:
            names = ", ".join(protocol.auth)
            raise RequestError(f"Unknown auth {auth!r}. Valid for {protocol.title}: {names}.")
        self._key_header = protocol.auth[auth or next(iter(protocol.auth))]
        self._api_key = api_key
        self._timeouts = timeouts
        self._retries = retries or RetryPolicy()
        self._proxy = proxy
        self._allow_http = allow_http
        more = {**(headers or {}), **(secret_headers or {})}
        self._headers = {name.lower(): value for name, value in more.items()}
        # The values of the secret headers, to redact them. Like a key, they are never shown or stored.
        values = (secret_headers or {}).values()
        self.secrets = (*values, *(value.partition(" ")[2] for value in values if " " in value))
        self._http: HttpClient | None = None

    def __repr__(self) -> str:
        # The value may be a key that was entered as the URL, or a URL with a password.
        url = urlsplit(self.base_url)
        is_safe = url.scheme in ("http", "https") and "@" not in url.netloc
        return f"{type(self).__name__}({self.base_url if is_safe else 'no URL'})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; requests that are running fail. The client cannot be used afterwards."""
        if self._http is not None:
            await self._http.aclose()

    async def stream(
        self,
        request: ChatRequest | Mapping[str, Any],
        *,
        api_key: str | None = None,
        observers: Sequence[Observer] | Observers = (),
    ) -> AsyncGenerator[Event]:
        """Send a request and yield the events of the answer as they arrive.

        Leaving the loop early closes the connection. Wrap the call in `contextlib.aclosing` to close it at
        once.

        Args:
            request: The request, or its body in the format of the protocol.
            api_key: The key for this call; the empty string is no key.
            observers: Called with each attempt, its response and its bytes.

        Raises:
            BridgeError: The request failed. All events received before the failure have been yielded.
        """
        async with aclosing(self.batches(request, api_key=api_key, observers=observers)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(
        self,
        request: ChatRequest | Mapping[str, Any],
        *,
        api_key: str | None = None,
        observers: Sequence[Observer] | Observers = (),
    ) -> AsyncGenerator[list[Event]]:
        """Like `stream`, but yield one list of events per network read."""
        encoded = self.protocol.encode(request, stream=True)
        body = encode_body(encoded.body)
        key, steps = self._choose_key(api_key), Observers.of(observers)
        attempts = self._attempts(key, steps)
        async for attempt in attempts:
            with attempt:
                headers = {**self._request_headers(key), **encoded.headers}
                async with aclosing(self._send(body, headers, attempts.deadline, steps)) as batches:
                    async for batch in batches:
                        attempt.commit()
                        yield batch
                return

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Send one request as it is. The response is not decoded and the request not retried.

        Returns:
            A context manager for the response, whatever its status.
        """
        all_headers = {**self._request_headers(self._choose_key(api_key)), **(headers or {})}
        return self._get_http().send(method, self.base_url + path, all_headers, body)

    @asynccontextmanager
    async def forward(
        self,
        path: str,
        body: bytes,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        observers: Sequence[Observer] | Observers = (),
    ) -> AsyncIterator[PassedResponse]:
        """Send a body as it is, with retries until a response is accepted, and yield the response.

        The last response of a failed request is yielded as well, with its error, so that a caller of the
        same protocol gets exactly what the gateway sent.

        Raises:
            BridgeError: No response was received.
        """
        key, steps = self._choose_key(api_key), Observers.of(observers)
        url, all_headers = self.base_url + path, {**self._request_headers(key), **(headers or {})}
        attempts = self._attempts(key, steps)
        async for attempt in attempts:
            with attempt:
                for observe in steps.request:
                    observe(self.protocol.response_form, url, all_headers, body)
                async with self._get_http().send(
                    "POST", url, all_headers, body, deadline=attempts.deadline
                ) as response:
                    for observe_response in steps.response:
                        observe_response(response.status, response.headers)
                    passed = PassedResponse(response, steps)
                    if response.status >= 400 and attempt.schedule_retry(error := await passed.read_error()):
                        raise error
                    attempt.commit()
                    yield passed
                    return

    async def create(self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None) -> Answer:
        """Send a request and return the complete answer, without streaming.

        Args:
            request: The request, or its body in the format of the protocol.
            api_key: The key for this call; the empty string is no key.

        Raises:
            BridgeError: The request failed, or the protocol only has streamed answers.
        """
        if self.protocol.streams_only:
            raise RequestError(f"{self.protocol.title}: answers are always streamed. Use `stream`.")

        def decode(data: bytes) -> Answer:
            answer, decoder = Answer(), decoder_for(self.protocol)
            events, failure = split_failure(decoder.feed(data) + decoder.close())
            answer.add(events)
            if failure is not None:
                raise failure
            answer.end("completed")
            return answer

        encoded = self.protocol.encode(request, stream=False)
        body = encode_body(encoded.body)
        return await self._call("POST", self.protocol.path, body, api_key, decode, encoded.headers)

    async def input_tokens(
        self, request: ChatRequest | Mapping[str, Any], *, api_key: str | None = None
    ) -> int:
        """Let the gateway count the input tokens of a request.

        Raises:
            NotFound: The gateway does not count tokens.
            BridgeError: The request failed.
        """
        counter = self.protocol.counter
        if counter is None:
            raise NotFound(f"{self.protocol.title} has no endpoint that counts tokens.")
        if isinstance(request, ChatRequest) and request.quirks and not request.quirks.input_tokens:
            raise NotFound("This gateway does not count tokens (according to its profile).")
        encoded = self.protocol.encode(request, stream=True)
        body = encode_body(counter.select(encoded.body))
        return await self._call("POST", counter.path, body, api_key, read_token_count, encoded.headers)

    def encode_request(self, request: ChatRequest) -> bytes:
        """Return the body that would be sent for a request."""
        return encode_body(self.protocol.encode(request, stream=True).body)

    def complete_error(self, error: BridgeError, response: HttpResponse | None = None) -> BridgeError:
        """Add the status and request id of the response to an error, and redact the key in it."""
        if response is not None:
            _add_response_details(error, response)
        self._hide_secrets(error, self._api_key)
        return error

    def _hide_secrets(self, error: BridgeError, key: str | None) -> None:
        for secret in (key, *self.secrets):
            hide_key(error, secret)

    @property
    def has_key(self) -> bool:
        return bool(self._api_key)

    def proxy(self) -> str | None:
        """Return host and port of the proxy in use, without its user name and password."""
        return self._get_http().proxy_host(self.base_url)

    async def models(self, *, api_key: str | None = None) -> list[Model]:
        """Return the gateway's models of every type; none if the endpoint chooses the model."""
        models: dict[str, Model] = {}
        if (listing := self.protocol.models) is None:
            return []
        path = listing.path
        for _ in range(LIMITS.pages):
            page, last_id = await self._call("GET", path, None, api_key, listing.read)
            known = len(models)
            models |= {model.id: model for model in page}
            if last_id is None or len(models) == known:
                break
            path = listing.next_page + quote(last_id, safe="", errors="replace")
        return list(models.values())

    async def endpoints(self, model: str, *, api_key: str | None = None) -> Endpoints | None:
        """Return the gateway's data about the providers of a model; `None` if the protocol has none."""
        if self.protocol.endpoints_path is None:
            return None
        path = self.protocol.endpoints_path.format(quote(model, safe="/", errors="replace"))
        return await self._call("GET", path, None, api_key, read_endpoints)

    async def generation(self, generation_id: str, *, api_key: str | None = None) -> Generation:
        """Return the gateway's record of one request: its bill and its usage.

        Raises:
            NotFound: The gateway has no such record, or not yet: it follows shortly after the answer.
            BridgeError: The request failed.
        """
        generation = quote(generation_id, safe="", errors="replace")
        path = f"{self.protocol.accounting_path}/generation?id={generation}"
        return await self._call("GET", path, None, api_key, read_generation)

    async def credits(self, *, api_key: str | None = None) -> Credits:
        """Return the balance of the key's account at a gateway that sells credits.

        Raises:
            NotFound: The gateway has no such endpoint.
            BridgeError: The request failed.
        """
        path = f"{self.protocol.accounting_path}/credits"
        return await self._call("GET", path, None, api_key, read_credits)

    def _attempts(self, key: str | None, observers: Observers) -> Attempts:
        return Attempts(
            self._get_http(), self._retries, observers, lambda error: self._hide_secrets(error, key)
        )

    async def _send(
        self, body: bytes, headers: Mapping[str, str], deadline: float | None, observers: Observers
    ) -> AsyncGenerator[list[Event]]:
        """Send a request once, and yield the events of its response."""
        url = self.base_url + self.protocol.path
        for observe in observers.request:
            observe(self.protocol.response_form, url, headers, body)
        async with self._get_http().send(
            "POST", url + self._query, headers, body, deadline=deadline
        ) as response:
            for observe_response in observers.response:
                observe_response(response.status, response.headers)
            decoder = decoder_for(self.protocol, response.status, response.headers)
            is_complete = False
            try:
                async with aclosing(response.chunks()) as chunks:
                    async for chunk in chunks:
                        for observe_data in observers.data:
                            observe_data(chunk)
                        batch, failure = split_failure(decoder.feed(chunk))
                        if batch:
                            yield batch
                        if failure is not None:
                            raise _add_response_details(failure, response)
                        if decoder.is_finished:
                            is_complete = True
                            return
                is_complete = True
                batch, failure = split_failure(decoder.close())
                if batch:
                    yield batch
                if failure is not None:
                    raise _add_response_details(failure, response)
            finally:
                # However the stream ended: the gateway charges for one that was cut or left, too.
                cut = None if is_complete else split_failure(decoder.close())[1]
                if cut is not None and cut.usage is not None:
                    for observe_usage in observers.cut:
                        observe_usage(cut.usage)
                if (billing := decoder.billing) is not None:
                    for observe_billing in observers.billing:
                        observe_billing(billing)
                if decoder.unknown:
                    counts = ", ".join(f"{name[:80]!r} {count}" for name, count in decoder.unknown.items())
                    log.debug("Ignored unrecognised content: %s.", counts)

    async def _call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        api_key: str | None,
        decode: Callable[[bytes], Result],
        headers: Mapping[str, str] | None = None,
    ) -> Result:
        """Send a request that is not streamed, with retries, and decode its response."""
        key = self._choose_key(api_key)
        attempts = self._attempts(key, Observers(()))
        async for attempt in attempts:
            with attempt:
                all_headers = {**self._request_headers(key), **(headers or {})}
                async with self._get_http().send(
                    method, self.base_url + path, all_headers, body, deadline=attempts.deadline
                ) as response:
                    try:
                        if response.status >= 400:
                            data = await response.read_start(ERROR_BODY_LIMIT)
                            raise read_error_response(response.status, response.headers, data)
                        data = await response.read()
                        if len(data) > LIMITS.thread_size:
                            return await asyncio.to_thread(decode_body, decode, data)
                        return decode_body(decode, data)
                    except BridgeError as error:
                        raise _add_response_details(error, response) from None
        raise AssertionError  # the loop ends with a result or an error

    def _get_http(self) -> HttpClient:
        if self._http is None:
            self._http = load_http_client()(self._timeouts, proxy=self._proxy, allow_http=self._allow_http)
        return self._http

    def _choose_key(self, api_key: str | None) -> str | None:
        """Return the key for one call. An empty string means no key, not the client's own."""
        return self._api_key if api_key is None else api_key

    def _request_headers(self, key: str | None) -> dict[str, str]:
        if key and not is_valid_key(key):
            raise RequestError("The API key contains invalid characters. Check that it was copied correctly.")
        headers = {
            "accept": "text/event-stream, application/json",
            "content-type": "application/json",
            "user-agent": "tollbridge",
            **self.protocol.headers,
            **(self.protocol.describe_key(key) if key and self.protocol.describe_key else {}),
            **self._headers,
        }
        if key:
            headers[self._key_header.name] = self._key_header.prefix + key
        return headers


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Encode a request body as JSON.

    Raises:
        RequestError: The body is not JSON serializable.
    """
    try:
        return write_valid_json(body).encode()
    except ValueError as error:
        raise RequestError(f"The request cannot be encoded as JSON: {error}.") from None


def _add_response_details(error: BridgeError, response: HttpResponse) -> BridgeError:
    error.status = error.status or (response.status if response.status >= 400 else None)
    request_id = response.headers.get("x-request-id") or response.headers.get("request-id")  # Anthropic's
    error.request_id = error.request_id or request_id
    return error
