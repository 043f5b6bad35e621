"""One request that passes unchanged to a gateway that speaks the caller's own protocol.

The body is sent byte for byte, so that the gateway's prompt cache stays valid, and the response is returned
byte for byte. Both are only observed: the usage of the answer is recorded as in a turn, and the token
estimator learns from it. For that, the request is decoded after its answer, on another thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import cached_property

from tollbridge.clients.base import GatewayClient, Observer, PassedResponse
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.history.answer import apply_corrections, parts_from_events
from tollbridge.protocols.detect import GuardedDecoder, decoder_for
from tollbridge.protocols.stream import log_defect
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.tracker import RequestAccounting
from tollbridge.storage.worker import wait_for_write
from tollbridge.token_accounting import TokenAccounting
from tollbridge.turn import STOP_TIMEOUT, AttemptObserver, TurnResult
from tollbridge.types.errors import BridgeError, ContextTooLong, RequestError
from tollbridge.types.events import Event, Finished, Usage, split_failure
from tollbridge.types.messages import ChatRequest, is_marker

log = logging.getLogger(__name__)

# Seconds after which the row of a running request is written. The thread that writes competes with the event
# loop, which should first send the request. Models take longer than this for their first token.
ROW_DELAY = 0.02
# Seconds that the records of a completed request may wait, to be written together with those of others.
WRITE_DELAY = 0.1
# Bytes of the body that are decoded at once, after they were passed on. Decoding every event on its own takes
# several times as long, and the next event of another stream would wait for it.
DECODED_SIZE = 16 * 1024


class ForwardedResponse:
    """The response to a forwarded request. Its body can be read once.

    Attributes:
        status: The HTTP status.
        headers: The response headers, in lower case.
        error: The error that the response reports, if the gateway refused the request.
        events: The events of the body, if they are kept.
    """

    def __init__(
        self,
        response: PassedResponse,
        protocol: str,
        record: RequestAccounting,
        observers: Sequence[Observer] = (),
        *,
        keep_events: bool = False,
    ) -> None:
        self.events: list[Event] = []
        self.status = response.status
        self.headers = response.headers
        self.error = response.error
        self._response = response
        self._protocol = protocol
        self._record = record
        self._observers = observers
        self._keep_events = keep_events
        self._has_events = False
        self._is_complete = False
        self._unread = bytearray()  # what was passed on and is not decoded yet

    @cached_property
    def _decoder(self) -> GuardedDecoder:
        # Not created with the response: the first chunk is passed on before.
        return decoder_for(self._protocol, self.status, self.headers)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives, and observe the events in it.

        Raises:
            BridgeError: The connection to the gateway failed in the middle of the body.
        """
        try:
            async with aclosing(self._response.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
                    self._unread += chunk
                    # The time of the first event is recorded, and observers expect events as they arrive.
                    if len(self._unread) >= DECODED_SIZE or not self._has_events or self._observers:
                        self._read()
        except BridgeError as error:
            self.error = error
            raise
        self._is_complete = True

    def finish(self) -> None:
        """Observe the rest of what was passed on. The caller has received it and does not wait for this."""
        self._read()
        if (billing := self._decoder.billing) is not None:
            self._record.add_billing(billing)
        if self._is_complete:
            self._observe(self._decoder.close())

    def _read(self) -> None:
        if self._unread:
            data, self._unread = bytes(self._unread), bytearray()
            self._observe(self._decoder.feed(data))

    def _observe(self, events: list[Event]) -> None:
        batch, failure = split_failure(events)
        if batch:
            self._has_events = True
            self._record.add_events(batch)
            if self._keep_events:
                self.events += batch
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
    tokens: TokenAccounting | None = None,
    decode: Callable[[], ChatRequest] | None = None,
    explain: Callable[[UsageRow | None, Finished | None, float], object] | None = None,
    reserve: Callable[[], Awaitable[object]] | None = None,
) -> AsyncIterator[ForwardedResponse]:
    """Send a body as it is, and record the usage of the answer however the request ends.

    The row of the request is written if it is still running after `ROW_DELAY`, and when it has ended. Nothing
    waits for the database: that would delay the first byte of this or of the next request.

    Args:
        client: A client for the caller's protocol.
        path: The path of the endpoint, after the base URL.
        body: The body of the request.
        record: Records the usage; its row was not written yet.
        api_key: The key for this request; by default the client's own.
        headers: Headers of the caller that the gateway should receive.
        observers: Called with everything that happens.
        tokens: Learns from the usage of the answer.
        decode: Returns the request that the body contains. It is called on another thread; if it raises a
            `RequestError`, nothing is learned.
        explain: Called after a complete response, to explain the use of the prompt cache: with the record of
            the last attempt, the end of the answer, and the seconds that the explanation may wait.
        reserve: Reserves the cost of an attempt in the budgets, before each one is sent.

    Raises:
        BridgeError: No response was received.
        BudgetExceeded: A budget does not allow the request.
    """
    client = client.observed_by(AttemptObserver(record), *observers)
    if reserve is not None:
        client = client.admitting_retries(reserve)
    failure: BaseException | None = None
    row = asyncio.get_running_loop().call_later(ROW_DELAY, record.begin)
    learns = tokens is not None and decode is not None
    try:
        if reserve is not None:
            await reserve()
        async with client.forward(path, body, api_key=api_key, headers=headers) as response:
            forwarded = ForwardedResponse(response, client.protocol, record, observers, keep_events=learns)
            try:
                yield forwarded
            finally:
                forwarded.finish()
        failure = forwarded.error
        if tokens is not None and decode is not None:
            _learn(tokens, decode, forwarded, record)
    except (asyncio.CancelledError, GeneratorExit) as error:
        failure = error
        await wait_for_write(record.close("cancelled"), STOP_TIMEOUT)
        raise
    except BaseException as error:
        failure = error
        raise
    finally:
        row.cancel()
        reason = failure if isinstance(failure, BridgeError) else None
        record.close("completed" if failure is None else "failed", reason, delay=WRITE_DELAY)
        if explain is not None and failure is None:
            explain(record.last_row, record.finished, WRITE_DELAY)
        for observer in observers:
            await observer.end(_make_result(record) if failure is None else None, failure)


def _learn(
    tokens: TokenAccounting,
    decode: Callable[[], ChatRequest],
    forwarded: ForwardedResponse,
    record: RequestAccounting,
) -> None:
    """Learn from the usage of an answer, or from the error of a prompt that is too long, as a turn does."""
    error, events, usage = forwarded.error, forwarded.events, _context(record)
    billing = record.finished.billing if record.finished else None
    provider = billing.provider if billing else None
    if not isinstance(error, ContextTooLong) and (error is not None or usage is None):
        return

    def learn(estimator: HybridTokenEstimator) -> None:
        try:
            request = decode()
            if isinstance(error, ContextTooLong):
                estimator.refused(request, error)
            elif usage is not None:
                parts = parts_from_events(apply_corrections(events))
                answer = [part for part in parts if not is_marker(part)]
                estimator.calibrate_request(request, usage, answer, provider=provider)
        except RequestError:
            log.debug("A forwarded request could not be decoded; the token estimator does not learn from it.")
        except Exception as defect:  # noqa: BLE001 - nobody waits for the result; see `EventGuard`
            log_defect("A forwarded request", defect)

    tokens.learn_later(learn)


def _context(record: RequestAccounting) -> Usage | None:
    return (record.finished.context or record.finished.usage) if record.finished else None


def _make_result(record: RequestAccounting) -> TurnResult:
    finished = record.finished
    return TurnResult(
        usage=record.usage,
        context=_context(record),
        finish_reason=finished.reason if finished else None,
        response_id=finished.response_id if finished else None,
        model=finished.model if finished else None,
        first=record.first,
        duration=record.duration,
        cost=record.cost,
    )
