"""One request that passes unchanged to a gateway that speaks the caller's own protocol.

The body is sent byte for byte, so that the gateway's prompt cache stays valid, and the response is returned
byte for byte. Both are only observed, in the same lifecycle as a turn. The request is decoded at most once:
before it is sent if there are budgets, otherwise after its answer, on another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import cached_property

from tollbridge.clients.base import GatewayClient
from tollbridge.lifecycle import Lifecycle
from tollbridge.protocols.detect import GuardedDecoder, decoder_for
from tollbridge.request_context import ForwardedBody, RequestContext
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Event, split_failure
from tollbridge.types.messages import ChatRequest

# Seconds after which the row of a running request is written. The thread that writes competes with the event
# loop, which should first send the request. Models take longer than this for their first token.
ROW_DELAY = 0.02
# Bytes of the body that are decoded at once, after they were passed on. Decoding every event on its own takes
# several times as long, and the next event of another stream would wait for it.
DECODED_SIZE = 16 * 1024


class ForwardedTurn(Lifecycle[bytes | None]):
    """A request that is forwarded, and its response. `async with` returns when the headers have arrived.

    Nothing waits for the database: that would delay the first byte of this or of the next request. The row of
    the request is written if it is still running after `ROW_DELAY`, and when it has ended.

    Attributes:
        headers: The response headers, in lower case.

    Args:
        client: The client of the context, which replays of recordings replace by one that cannot forward.

    Raises:
        BridgeError: No response was received.
        BudgetExceeded: A budget does not allow the request.
    """

    in_background = True

    def __init__(self, body: ForwardedBody, client: GatewayClient, context: RequestContext) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._body = body
        self._client = client
        self._is_complete = False  # the whole response was passed on
        self._unread = bytearray()  # what was passed on and is not decoded yet
        # The caller gets the bytes: only a recording needs marked reasoning.
        super().__init__(context, marks_reasoning=bool(context.observers))

    async def __aenter__(self) -> ForwardedTurn:
        await anext(self._items)  # ends when the headers have arrived
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._is_complete and error[0] is None:
            # The caller has received everything and does not wait for what is still done.
            async for _ in self._items:
                pass
        await super().__aexit__(*error)  # type: ignore[arg-type]

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives, and observe the events in it. The body can be read once.

        Raises:
            BridgeError: The connection to the gateway failed in the middle of the body.
        """
        async for chunk in self._items:
            if chunk is None:
                return
            yield chunk

    @property
    def _can_decode(self) -> bool:
        return self._body.decode is not None

    def _sent_request(self) -> ChatRequest:
        return self._body.request

    async def _exchange(self) -> AsyncGenerator[bytes | None]:
        """Yield `None` when the headers have arrived, then the body, and `None` again at its end.

        The first is what `__aenter__` waits for. After the second, the caller has the whole body, and what
        follows happens in `__aexit__`.
        """
        self._usage_observer.start()
        row = asyncio.get_running_loop().call_later(ROW_DELAY, self._usage_observer.write_row)
        try:
            if self._budget_observer is not None:
                self._usage_observer.write_row()
                await self._budget_observer.reserve(self._body.request)
            async with self._client.forward(
                self._body.path,
                self._body.data,
                api_key=self.context.api_key,
                headers=self._body.headers,
                observers=self._observers,
            ) as response:
                self.status, self.headers = response.status, response.headers
                self.result.error = response.error
                yield None
                try:
                    async with aclosing(response.chunks()) as chunks:
                        async for chunk in chunks:
                            yield chunk
                            self._unread += chunk
                            # The time of the first event is recorded, and observers expect events as they
                            # arrive.
                            if (
                                len(self._unread) >= DECODED_SIZE
                                or not self.result.events
                                or self.context.observers
                            ):
                                self._decode_unread()
                    self._is_complete = True
                    yield None
                finally:
                    self._finish()
        finally:
            row.cancel()

    @cached_property
    def _decoder(self) -> GuardedDecoder:
        # Not created with the response: the first chunk is passed on before.
        return decoder_for(self._client.protocol, self.status, self.headers)

    def _finish(self) -> None:
        """Observe the rest of what was passed on."""
        self._decode_unread()
        if (billing := self._decoder.billing) is not None:
            for observe in self._observers.billing:
                observe(billing)
        events, failure = split_failure(self._decoder.close())
        if self._is_complete:
            self._keep(events, failure)
        elif failure is not None and failure.usage is not None:
            for observe_usage in self._observers.cut:
                observe_usage(failure.usage)

    def _decode_unread(self) -> None:
        if self._unread:
            data, self._unread = bytes(self._unread), bytearray()
            self._keep(*split_failure(self._decoder.feed(data)))

    def _keep(self, events: list[Event], failure: BridgeError | None) -> None:
        if events:
            self._observe(events)
        if failure is not None and self.result.error is None:
            self.result.error = failure
