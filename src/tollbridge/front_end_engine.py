"""What front ends need of an engine besides its public methods.

A front end forwards requests of callers that speak the gateway's own protocol, and needs facts about models
without waiting. Programs that use the library do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from tollbridge.catalog.models import ModelFacts, apply_model_settings
from tollbridge.clients.observer import Observer
from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.forward import ForwardedTurn
from tollbridge.request_context import ForwardedBody
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import Model

# Seconds that the gateway has to count the tokens of a request. After that, they are estimated.
COUNT_TIMEOUT = 5.0


class FrontEndEngine:
    """Uses an engine on behalf of callers. It belongs to the engine: the two share everything."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find_model(self, model_id: str, account: Account) -> Model | None:
        """Return a model of the last list, with the corrections of the settings; `None` if unknown."""
        client = self._engine._connections.get(account).client
        model = self._engine.catalog.find(
            client, model_id, api_key=account.api_key, account=account.list_name
        )
        return None if model is None else apply_model_settings(model, self._engine.settings)

    def is_plain(self, model: str, account: Account) -> bool:
        """Return whether nothing is known that must be changed in requests for a model."""
        base_url = self._engine._connections.get(account).client.base_url
        return not self._engine.compat.recall(base_url, model).changes_requests

    @asynccontextmanager
    async def forward(
        self,
        model: str,
        path: str,
        body: bytes,
        account: Account,
        *,
        decode: Callable[[], ChatRequest] | None = None,
        headers: Mapping[str, str] | None = None,
        initiator: str | None = None,
        conversation: str | None = None,
        observers: Sequence[Observer] = (),
    ) -> AsyncIterator[ForwardedTurn]:
        """Send a body unchanged to a gateway that speaks the caller's own protocol.

        Args:
            model: The model that the body names.
            path: The path of the endpoint, after the base URL.
            body: The body of the request.
            account: The gateway and the key.
            decode: Returns the request that the body contains, for its recording, the token estimator and the
                explanation of cache misses. Without it, there is none of them.
            headers: Headers of the caller that the gateway should receive.
            initiator: The name of the calling program, for the usage records.
            conversation: The conversation of the request, for the usage records.
            observers: Called with everything that happens.
        """
        async with self._engine._connect(account) as connection:
            client = connection.client
            forwarded = ForwardedBody(model, path, body, headers, decode)
            facts = ModelFacts(Model(id=model), is_listed=False, capabilities=None, prices=None)
            if self._engine.settings.budgets.is_set or self._engine.settings.record_folder:
                facts = await self._engine._wait_for_facts(model, client, account)
            if decode is not None and self._engine.settings.record_folder:
                recording = self._engine._start_recording(forwarded.request, client, account, facts)
                observers = (*observers, *recording)
            context = self._engine._make_context(
                connection,
                account,
                facts,
                conversation=conversation,
                initiator=initiator,
                observers=observers,
            )
            async with ForwardedTurn(forwarded, client, context) as turn:
                yield turn

    async def count_request(
        self, request: ChatRequest, account: Account, *, body: Mapping[str, Any] | None = None
    ) -> int:
        """Return the input tokens of a request: the gateway's own count where it can be had.

        A prompt that was answered or counted before is not counted again. If the gateway does not count
        within a few seconds, the estimate is returned.

        Args:
            request: The request.
            account: The gateway and the key.
            body: The request as the caller wrote it, if the caller speaks the gateway's protocol.
        """
        estimate = self._engine.estimator.estimate_request(request)
        if estimate.method == "actual":
            return estimate.tokens
        count = None
        async with self._engine._connect(account) as connection:
            if connection.tokens is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(COUNT_TIMEOUT):
                        count = await connection.tokens.count(request, account.api_key, body)
        return estimate.tokens if count is None else count
