"""The facade: what an editor asks of a provider of models, in three calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import msgspec

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatStore
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage.tracker import UsageTracker
from tollbridge.turn import Bridge, TokenAccounting, TurnResult
from tollbridge.types.messages import ChatRequest, Message, Part, Tool
from tollbridge.types.models import Model


class ChatModelProvider:
    """Models, answers and token counts of one gateway. What it learns from answers makes its counts better.

    async with OpenResponsesClient(base_url, key) as client, ChatModelProvider(client) as provider:
        for model in await provider.provide_models(): ...
        turn = await provider.provide_response(model.id, messages, print)

    `lessons` are what is known of the server: `RememberedLessons(find_quirks)` heeds the profile that
    `tollbridge doctor` wrote.
    """

    def __init__(
        self,
        client: OpenResponsesClient,
        estimator: HybridTokenEstimator | None = None,
        tracker: UsageTracker | None = None,
        *,
        lessons: CompatStore | None = None,
    ) -> None:
        self._client = client
        self._toll = TokenAccounting(estimator or HybridTokenEstimator())
        self._bridge = Bridge(client, tracker, self._toll, lessons=lessons)
        self._models: dict[str, Model] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Keep what was learned. What it was given (client, estimator, tracker) stays open."""
        await self._toll.aclose()

    @property
    def usage(self) -> UsageTracker:
        """What every request came to."""
        return self._bridge.tracker

    async def provide_models(self) -> list[Model]:
        """The models one can chat with."""
        models = [model for model in await self._client.models() if model.is_chat_model]
        self._models = {model.id: model for model in models}
        return models

    async def provide_response(
        self,
        model: str,
        messages: Sequence[Message],
        report: Callable[[Part], object],
        tools: Sequence[Tool] = (),
        **options: object,
    ) -> TurnResult:
        """Report the parts of the answer as they come; `options` are further fields of `ChatRequest`."""
        known = self._models.get(model)
        asked = {"model": model, "messages": tuple(messages), "tools": tuple(tools), **options}

        def report_all(parts: list[Part]) -> None:
            for part in parts:
                report(part)

        return await self._bridge.answer(
            msgspec.structs.replace(ChatRequest(model=model, messages=()), **asked),
            report_all,
            window=known.limits.input if known else None,
            abilities=known.capabilities if known else None,
        )

    def provide_token_count(self, model: str, text: str | Message) -> int:
        """The tokens of a text, or of a message's content."""
        estimator = self._toll.estimator
        if isinstance(text, str):
            return estimator.estimate_text(model, text)
        return estimator.estimate_message(model, text)
