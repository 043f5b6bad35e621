"""What one running gateway knows, and how it makes an answer; nothing of HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tollbridge.testing import faults as tampering
from tollbridge.testing import model as demo
from tollbridge.testing import model as prompt
from tollbridge.testing import requests as turns
from tollbridge.testing import validation
from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.requests import AcceptedRequest, PrefixCache, ResponseStore, count_text
from tollbridge.testing.responses import Resource, ScriptedAnswer, Step, make_compaction, make_events, number
from tollbridge.testing.scenarios import Scenario, find_scenario
from tollbridge.testing.strict import ReasoningRegistry, check_rules, check_schema

# SECTION What reached the gateway, for tests to look at: requests, and the moments clients hung up.

_KEPT = 1_000


class ReceivedRequest:
    """One request. The key stays in memory: `bearer` holds it, `headers` and `repr` do not."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], port: int | None = None) -> None:
        self.id = f"req_{secrets.token_hex(8)}"
        self.method = method
        self.path = path
        self.port = port
        self.bearer = _bearer(headers)
        # By lower-case name; a header given twice keeps its last value.
        self.headers = {name.lower(): value for name, value in headers.items()}
        if "authorization" in self.headers:
            self.headers["authorization"] = "[redacted]"
        self.body: Any = None
        self.status: int | None = None
        self.scenario: str | None = None
        self.arrived_at = time.monotonic()
        # When the server noticed that the client had gone before the end, by `time.monotonic()`.
        self.hung_up_at: float | None = None
        # Whether it was us who closed the connection.
        self.dropped = False

    def __repr__(self) -> str:
        return f"<Arrival {self.method} {self.path} {self.status}>"


class RequestLog:
    """The newest requests, oldest first."""

    def __init__(self) -> None:
        self.requests: deque[ReceivedRequest] = deque(maxlen=_KEPT)
        self._news: asyncio.Queue[ReceivedRequest] = asyncio.Queue()
        self._hang_ups: asyncio.Queue[float] = asyncio.Queue()
        self._seen: set[bytes] = set()
        # Set when the server closes: from then on nobody leaves by himself.
        self.closed = False

    def add(self, arrival: ReceivedRequest) -> None:
        self.requests.append(arrival)
        if self._news.qsize() < _KEPT:
            self._news.put_nowait(arrival)

    async def arrived(self, timeout: float) -> ReceivedRequest:  # noqa: ASYNC109 (a bound is the point)
        """The next request, first come first told; raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            return await self._news.get()

    def note_hang_up(self, arrival: ReceivedRequest) -> None:
        if self.closed or arrival.dropped or arrival.hung_up_at is not None:
            return
        arrival.hung_up_at = time.monotonic()
        if self._hang_ups.qsize() < _KEPT:
            self._hang_ups.put_nowait(arrival.hung_up_at)

    async def hung_up(self, timeout: float) -> float:  # noqa: ASYNC109 (a bound is the point)
        """The moment the next client went away, first seen first told; raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            return await self._hang_ups.get()

    def is_first(self, mark: bytes) -> bool:
        """Whether this very request has not come before."""
        if mark in self._seen:
            return False
        self._seen.add(mark)
        return True


def _bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


# SECTION What one running gateway knows, and how it makes an answer; nothing of HTTP.

SCENARIO_HEADER = "x-tollbridge-scenario"
_ENDS = frozenset({"response.completed", "response.incomplete"})


# What a caller's own model says to a turn; `None` leaves it to the scripted one.
Model = Callable[[AcceptedRequest], ScriptedAnswer | None]


class Service:
    def __init__(
        self,
        scenario: str,
        api_key: str | None,
        settings: tampering.FaultSettings,
        model: Model | None = None,
        *,
        strict: bool = False,
    ) -> None:
        find_scenario(scenario)
        self._reasoning = ReasoningRegistry() if strict else None
        self._model = model
        self.scenario = scenario
        self.settings = settings
        self.memory = ResponseStore()
        self.arrivals = RequestLog()
        self._cache = PrefixCache()
        self._api_key = api_key

    def check_key(self, bearer: str | None) -> None:
        if self._api_key is None:
            return
        if bearer is None:
            raise RequestRejected(
                401,
                "missing_api_key",
                "No API key: send it as `Authorization: Bearer KEY`.",
                param="Authorization",
            )
        if not hmac.compare_digest(bearer.encode(), self._api_key.encode()):
            raise RequestRejected(401, "invalid_api_key", "The API key is wrong.", param="Authorization")

    def choose_scenario(self, headers: Mapping[str, str], body: Any) -> str:
        """The header's, or that of the last user message, or the server's."""
        named = headers.get(SCENARIO_HEADER)
        said = None
        if isinstance(body, Mapping):  # `prompt` is the AI SDK's name for it
            said = prompt.fault_name(body.get("input", body.get("prompt")))
        return named or said or self.scenario

    def is_first(self, *parts: str | bytes) -> bool:
        whole = b"\0".join(part.encode() if isinstance(part, str) else part for part in parts)
        return self.arrivals.is_first(hashlib.sha256(whole).digest())

    def accept(self, body: Mapping[str, Any], *local: ResponseStore) -> AcceptedRequest:
        if self._reasoning is not None:
            check_schema(body)
            check_rules(body.get("input"))
        asked = validation.read_create(body)
        if asked.background:
            raise RequestRejected(
                400,
                "unsupported_parameter",
                "background is not offered here: leave it out.",
                param="background",
            )
        turn = turns.accept(asked, [*local, self.memory], self._cache)
        if self._reasoning is not None:
            self._reasoning.check(asked.model, turn.items)
        return turn

    def count(self, body: Mapping[str, Any]) -> int:
        return turns.accept(validation.read_create(body), [self.memory]).input_tokens

    def steps(self, turn: AcceptedRequest, scenario: Scenario, *local: ResponseStore) -> Iterator[Step]:
        """The numbered events of the answer. It is remembered when its end is about to be told."""
        scripted = self._model(turn) if self._model else None
        said = scenario.answer(scripted or demo.answer(turn, scenario.words, self.settings.pace))
        steps = scenario.events(make_events(turn, said, scenario.reasoning), self.settings)
        for step in number(steps) if scenario.numbered else steps:
            if isinstance(step, dict) and step["type"] in _ENDS:
                self._remember(turn, step["response"]["output"], local)
            yield step

    def _remember(
        self, turn: AcceptedRequest, output: Sequence[dict[str, Any]], local: Sequence[ResponseStore]
    ) -> None:
        items = (*turn.items, *output)
        self._cache.remember(turn.preface, items)
        if self._reasoning is not None:
            self._reasoning.add(turn.body.model, output)
        kept = [*local, self.memory] if turn.body.store is not False else local
        for memory in kept:
            memory.keep(turn.id, items)

    def compact(self, body: Mapping[str, Any]) -> Resource:
        turn = turns.accept_compaction(validation.read_compact(body), [self.memory])
        summary = " ".join(prompt.describe(turn.items, turn.body.instructions, ()))
        return make_compaction(turn, summary, count_text(summary))
