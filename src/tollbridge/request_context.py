"""What a request needs, as one object that the engine makes and a turn runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol as TypingProtocol

import msgspec

from tollbridge.clients.observer import Observer, Observers
from tollbridge.compat.memory import CompatMemory
from tollbridge.observers.budget import BudgetRules
from tollbridge.policy.limits import OutputLimit
from tollbridge.protocols.protocol import Protocol
from tollbridge.storage.cache_tracker import CacheTracker
from tollbridge.storage.rows import UsageRow
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.token_accounting import TokenAccounting
from tollbridge.types.events import Event
from tollbridge.types.messages import ChatRequest, Message, Role
from tollbridge.types.models import Capabilities, Prices
from tollbridge.types.quirks import LearnedQuirks


class StreamClient(TypingProtocol):
    """The part of a client that a turn needs: its base URL, and the events of each network read."""

    @property
    def base_url(self) -> str: ...

    @property
    def protocol(self) -> Protocol: ...

    def batches(
        self,
        request: ChatRequest,
        *,
        api_key: str | None = None,
        observers: Sequence[Observer] | Observers = (),
    ) -> AsyncGenerator[list[Event]]: ...


class ForwardedBody(msgspec.Struct, dict=True):  # `dict` is where the cached property is kept
    """The body of a request that passes unchanged to a gateway of the caller's own protocol.

    Attributes:
        path: The path of the endpoint, after the base URL.
        headers: Headers of the caller that the gateway should receive.
        decode: Returns the request that the body contains. Without it, nothing is learned from the request.
    """

    model: str
    path: str
    data: bytes
    headers: Mapping[str, str] | None = None
    decode: Callable[[], ChatRequest] | None = None

    @cached_property
    def request(self) -> ChatRequest:
        """The request, decoded on first use: most forwarded requests are decoded after their answer.

        Raises:
            RequestError: The body is not a request of its protocol.
        """
        if self.decode is not None:
            return self.decode()
        # For an estimate. The JSON of a body has more tokens than its texts.
        text = self.data.decode("utf-8", "replace")
        return ChatRequest(model=self.model, messages=(Message(Role.USER, text),))


class RequestContext(msgspec.Struct, kw_only=True, frozen=True):
    """What a request needs besides its own content. The engine makes one for each request.

    Attributes:
        api_key: The key for this request; by default the client's own.
        account: The account that usage is recorded for.
        window: The most input tokens the model accepts, if known: a prompt close to it causes a warning.
        output_limit: How to choose the output limit if the request has none; by default none is sent.
        capabilities: What the model can do, if known: content it cannot accept is replaced by a note.
        prices: The prices of the model, if known: the cost is recorded with the usage.
        find_prices: Returns the prices if they become known during the request.
        conversation: The conversation of the request, if the caller says which.
        compat: What is known about servers, and where lessons are remembered; by default nothing is known.
        learned: What `compat` says about this model, if it was looked up already.
        usage: Where usage is recorded; by default it is kept in memory.
        on_record: Called with the record of each attempt that has ended.
        budgets: Keeps the request within the budgets; by default, there are none.
        tokens: Estimates the prompt and learns from the usage; by default neither is done.
        may_count: Whether the gateway may be asked to count the tokens of the prompt.
        cache: Explains what the prompt cache did; by default nothing is explained.
        observers: Called with everything that happens.
    """

    client: StreamClient
    model: str
    api_key: str | None = None
    account: BillingAccount = BillingAccount()
    window: int | None = None
    output_limit: OutputLimit | None = None
    capabilities: Capabilities | None = None
    prices: Prices | None = None
    find_prices: Callable[[], Prices | None] | None = None
    conversation: str | None = None
    compat: CompatMemory = msgspec.field(default_factory=CompatMemory)
    learned: LearnedQuirks | None = None
    usage: UsageTracker = msgspec.field(default_factory=UsageTracker)
    on_record: Callable[[UsageRow], object] | None = None
    budgets: BudgetRules | None = None
    tokens: TokenAccounting | None = None
    may_count: bool = True
    cache: CacheTracker | None = None
    observers: Sequence[Observer] = ()
