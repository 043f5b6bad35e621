"""Observers: called at each step of a request, by the client that sends it and by the turn that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from tollbridge.answer import Answer
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import Billing, Event, Usage


class Observer:
    """Is called with everything that happens in a request or a turn. The methods of this class do nothing.

    A subclass overrides the methods it needs; the others are never called. They must not raise, except
    `resend`, and must not store the key that is in the request headers.
    """

    def request(self, form: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Called before a request is sent, once per attempt.

        Args:
            form: The form of the response, as recordings name it.
        """

    def response(self, status: int, headers: Mapping[str, str]) -> None:
        """Called when the headers of a response have arrived."""

    def data(self, chunk: bytes) -> None:
        """Called with each chunk of the response body, decompressed, one per network read."""

    def billing(self, billing: Billing) -> None:
        """Called at the end of an attempt, however it ends, if the gateway reported its cost or an id."""

    def cut(self, usage: Usage) -> None:
        """Called if a response was cut, or left by the caller, with the usage reported until then."""

    def retry(self, error: BridgeError, seconds: float) -> None:
        """Called when an attempt has failed and the next one starts after this many seconds."""

    async def resend(self) -> None:
        """Called after that delay, before the request is sent again. If it raises, the call ends."""

    def events(self, batch: list[Event]) -> None:
        """Called with the events of each network read of a turn."""

    async def end(self, answer: Answer) -> None:
        """Called at the end of a turn, however it ends."""


class Observers:
    """The observers of one request, as one list of methods per step.

    A step happens for every network read, and most observers need few steps: only the methods that a class
    overrides are in the lists.
    """

    __slots__ = ("billing", "cut", "data", "end", "events", "request", "resend", "response", "retry")

    def __init__(self, observers: Iterable[Observer]) -> None:
        observers = tuple(observers)
        self.request: list[Callable[[str, str, Mapping[str, str], bytes], None]]
        self.response: list[Callable[[int, Mapping[str, str]], None]]
        self.data: list[Callable[[bytes], None]]
        self.billing: list[Callable[[Billing], None]]
        self.retry: list[Callable[[BridgeError, float], None]]
        self.resend: list[Callable[[], Awaitable[None]]]
        self.events: list[Callable[[list[Event]], None]]
        self.cut: list[Callable[[Usage], None]]
        self.end: list[Callable[[Answer], Awaitable[None]]]
        for step in self.__slots__:
            default = getattr(Observer, step)
            users = (each for each in observers if getattr(type(each), step) is not default)
            setattr(self, step, [getattr(each, step) for each in users])

    @classmethod
    def of(cls, observers: Iterable[Observer] | Observers) -> Observers:
        return observers if isinstance(observers, Observers) else cls(observers)
