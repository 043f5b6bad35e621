"""One request that passes unchanged to a gateway that speaks the caller's own protocol.

The body is sent byte for byte, so that the gateway's prompt cache stays valid, and the response is returned
byte for byte. Both are only observed: the usage of the answer is recorded as in a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from tollbridge.clients.base import GatewayClient, Observer, PassedResponse
from tollbridge.protocols.detect import decoder_for
from tollbridge.storage.database import wait_for_write
from tollbridge.storage.tracker import RequestAccounting
from tollbridge.turn import STOP_TIMEOUT, AttemptObserver, TurnResult
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event, split_failure


class ForwardedResponse:
    """The response to a forwarded request. Its body can be read once.

    Attributes:
        status: The HTTP status.
        headers: The response headers, in lower case.
        error: The error that the response reports, if the gateway refused the request.
    """

    def __init__(
        self,
        response: PassedResponse,
        protocol: str,
        record: RequestAccounting,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.status = response.status
        self.headers = response.headers
        self.error = response.error
        self._response = response
        self._decoder = decoder_for(protocol, response.status, response.headers)
        self._record = record
        self._observers = observers

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives, and observe the events in it.

        Raises:
            BridgeError: The connection to the gateway failed in the middle of the body.
        """
        try:
            async with aclosing(self._response.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
                    self._observe(self._decoder.feed(chunk))
        except BridgeError as error:
            self.error = error
            raise
        self._observe(self._decoder.close())

    def _observe(self, events: list[Event]) -> None:
        batch, failure = split_failure(events)
        if batch:
            self._record.add_events(batch)
            for observer in self._observers:
                observer.events(batch)
        if failure is not None and self.error is None:
            self.error = failure


@asynccontextmanager
async def forward_request(
    client: GatewayClient,
    path: str,
    body: bytes,
    record: RequestAccounting,
    *,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    observers: Sequence[Observer] = (),
    reserve: Callable[[], Awaitable[object]] | None = None,
) -> AsyncIterator[ForwardedResponse]:
    """Send a body as it is, and record the usage of the answer however the request ends.

    The row of the request is submitted to the database's thread before the request is sent. It is not
    awaited, because that would delay the first byte.

    Args:
        client: A client for the caller's protocol.
        path: The path of the endpoint, after the base URL.
        body: The body of the request.
        record: Records the usage.
        api_key: The key for this request; by default the client's own.
        headers: Headers of the caller that the gateway should receive.
        observers: Called with everything that happens.
        reserve: Reserves the cost of an attempt in the budgets, before each one is sent.

    Raises:
        BridgeError: No response was received.
        BudgetExceeded: A budget does not allow the request.
    """
    client = client.observed_by(AttemptObserver(record))
    for observer in observers:
        client = client.observed_by(observer)
    if reserve is not None:
        client = client.admitting_retries(reserve)
    failure: BaseException | None = None
    try:
        if reserve is not None:
            await reserve()
        async with client.forward(path, body, api_key=api_key, headers=headers) as response:
            forwarded = ForwardedResponse(response, client.protocol, record, observers)
            yield forwarded
        failure = forwarded.error
    except (asyncio.CancelledError, GeneratorExit) as error:
        failure = error
        await wait_for_write(record.close("cancelled"), STOP_TIMEOUT)
        raise
    except BaseException as error:
        failure = error
        raise
    finally:
        reason = failure if isinstance(failure, BridgeError) else None
        await wait_for_write(record.close("completed" if failure is None else "failed", reason))
        for observer in observers:
            await observer.end(_make_result(record) if failure is None else None, failure)


def _make_result(record: RequestAccounting) -> TurnResult:
    finished = record.finished
    return TurnResult(
        usage=record.usage,
        context=(finished.context or finished.usage) if finished else None,
        finish_reason=finished.reason if finished else None,
        response_id=finished.response_id if finished else None,
        model=finished.model if finished else None,
        first=record.first,
        duration=record.duration,
    )
