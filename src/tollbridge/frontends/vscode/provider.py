"""The provider facade: models, answers and token counts of one gateway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from tollbridge.answer import Answer
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.compat.memory import CompatMemory
from tollbridge.config.schema import Settings
from tollbridge.engine import Engine
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage.tracker import UsageTracker
from tollbridge.types.messages import ChatRequest, Message, Part, Tool
from tollbridge.types.models import Model


class ChatModelProvider:
    """Models, answers and token counts of one gateway, in the three calls an editor makes.

        async with OpenResponsesClient(base_url, key) as client, ChatModelProvider(client) as provider:
            for model in await provider.provide_models(): ...
            result = await provider.provide_response(model.id, messages, print)

    The client, the estimator and the tracker that are passed in are not closed.

    Args:
        client: Sends all requests.
        estimator: Counts tokens and learns from reported usage; by default one that is kept in memory.
        tracker: Where usage is recorded; by default it is kept in memory.
        lessons: What is known about the server. `CompatMemory(find_quirks)` uses the profile that
            `tollbridge doctor` wrote.
    """

    def __init__(
        self,
        client: OpenResponsesClient,
        estimator: HybridTokenEstimator | None = None,
        tracker: UsageTracker | None = None,
        *,
        lessons: CompatMemory | None = None,
    ) -> None:
        self._engine = Engine.open(
            Settings(context_management=False, count_at_gateway=False),
            client=client,
            compat=lessons or CompatMemory(),
            estimator=estimator or HybridTokenEstimator(),
            usage=tracker or UsageTracker(),
            persistent=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait until everything learned is stored."""
        await self._engine.aclose()

    @property
    def usage(self) -> UsageTracker:
        """The usage of every request."""
        return self._engine.usage

    async def provide_models(self) -> list[Model]:
        """Return the chat models of the gateway."""
        return await self._engine.models(refresh=True)

    async def provide_response(
        self,
        model: str,
        messages: Sequence[Message],
        report: Callable[[Part], object],
        tools: Sequence[Tool] = (),
        **options: Any,
    ) -> Answer:
        """Report the parts of the answer as they arrive, and return the result.

        Args:
            model: The id of the model.
            messages: The conversation.
            report: Called with each part.
            tools: The tools that the model may call.
            **options: Further fields of `ChatRequest`.

        Raises:
            BridgeError: The turn failed. It is raised after all parts before it were reported.
        """
        request = ChatRequest(model=model, messages=tuple(messages), tools=tuple(tools), **options)
        async with self._engine.turn(request) as turn:
            async for parts in turn.parts():
                for part in parts:
                    report(part)
        return turn.result

    def provide_token_count(self, model: str, text: str | Message) -> int:
        """Return the tokens of a text, or of a message's content."""
        return self._engine.count(model, [text])[0]
