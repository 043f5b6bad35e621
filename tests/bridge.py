"""Run turns with one client, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tollbridge.clients.base import Observer
from tollbridge.compat.profiles import CompatMemory, CompatStore
from tollbridge.estimator import TokenAccounting
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.turn import StreamClient, Turn, TurnResult
from tollbridge.types.messages import ChatRequest, Part
from tollbridge.types.models import Capabilities
from tollbridge.types.quirks import LearnedQuirks


class Bridge:
    """Run turns with one client and report their answers as parts.

    Args:
        gateway: Sends the requests.
        tracker: Where usage is recorded; by default it is kept in memory.
        toll: Estimates prompts and learns from usage; by default neither is done.
        account: The account that usage is recorded for.
        lessons: What is known about servers; by default nothing is.
        observers: Called with everything that happens in a turn.
    """

    def __init__(
        self,
        gateway: StreamClient,
        tracker: UsageTracker | None = None,
        toll: TokenAccounting | None = None,
        *,
        account: BillingAccount | None = None,
        lessons: CompatStore | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._client = gateway
        self._account = account
        self._tokens = toll
        self._compat = lessons or CompatMemory()
        self._observers = observers
        self.tracker = tracker or UsageTracker()

    async def answer(
        self,
        request: ChatRequest,
        report: Callable[[list[Part]], object],
        *,
        api_key: str | None = None,
        window: int | None = None,
        abilities: Capabilities | None = None,
        learned: LearnedQuirks | None = None,
    ) -> TurnResult:
        """Report the parts of the answer, one list per network read, and return the result.

        Args:
            request: What to send.
            report: Called with the parts of each network read.
            api_key: The key for this request; by default the client's own.
            window: The most input tokens the model accepts, if known.
            abilities: What the model can do, if known.
            learned: What is known about the model at this server, if it was looked up already.

        Raises:
            BridgeError: The turn failed. It is raised after all parts before it were reported.
        """
        async with Turn(
            request,
            self._client,
            compat=self._compat,
            usage=self.tracker,
            tokens=self._tokens,
            account=self._account,
            api_key=api_key,
            window=window,
            capabilities=abilities,
            learned=learned,
            observers=self._observers,
        ) as turn:
            async for parts in turn.parts():
                report(parts)
        assert turn.result is not None
        return turn.result
