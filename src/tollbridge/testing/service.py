"""The state of a running gateway, and how it creates an answer. Independent of HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.protocols import key_headers, read_key
from tollbridge.protocols.openresponses.schema import CompactBody, CreateBody
from tollbridge.protocols.openresponses.wire import read_usage
from tollbridge.testing.conversation import describe, find_fault_name
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.limits import LIMITS
from tollbridge.testing.model import make_answer
from tollbridge.testing.prompt_cache import CacheSettings, PromptCache
from tollbridge.testing.refusals import RequestRejected, reject
from tollbridge.testing.requests import (
    AcceptedRequest,
    PromptSettings,
    ResponseStore,
    accept_compaction,
    accept_request,
    make_preface,
    make_units,
)
from tollbridge.testing.responses import (
    Resource,
    ScriptedAnswer,
    Step,
    make_compaction,
    make_events,
    number_events,
)
from tollbridge.testing.scenarios import Scenario
from tollbridge.testing.strict import ReasoningRegistry, check_rules, check_schema
from tollbridge.testing.validation import read_shape
from tollbridge.types.events import Usage

SCENARIO_HEADER = "x-tollbridge-scenario"

# A model of the caller. None means: use the answer of the scripted model.
Model = Callable[[AcceptedRequest], ScriptedAnswer | None]


class ReceivedRequest:
    """A request that the gateway received, for tests to inspect. Times are those of `time.monotonic()`."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], port: int | None) -> None:
        self.id = f"req_{secrets.token_hex(8)}"  # the response header `x-request-id`
        self.method = method  # `WEBSOCKET` for a message of a WebSocket
        self.path = path  # percent-encoded as it was received
        self.port = port
        self.bearer = read_key(headers)  # the API key; `headers` and `repr()` do not contain it
        # By lower-case name. If a header is repeated, the last value counts.
        self.headers = {name.lower(): value for name, value in headers.items()}
        for name in self.headers.keys() & {header.name for header in key_headers()}:
            self.headers[name] = "[redacted]"
        self.body: Any = None  # decoded
        self.raw = b""
        self.status: int | None = None  # None before the response is sent
        self.scenario: str | None = None
        self.received_at = time.monotonic()
        # When the server noticed that the client disconnected before the end of the response.
        self.disconnected_at: float | None = None
        self.dropped = False  # the server closed the connection before the end of the response

    def __repr__(self) -> str:
        return f"<ReceivedRequest {self.method} {self.path} {self.status}>"


class RequestLog:
    """The newest requests, in the order in which they were received. The queues are what tests wait for."""

    def __init__(self) -> None:
        self.requests: deque[ReceivedRequest] = deque(maxlen=LIMITS.requests)
        self.new_requests: asyncio.Queue[ReceivedRequest] = asyncio.Queue()
        self.disconnect_times: asyncio.Queue[float] = asyncio.Queue()
        self.closed = False  # the server stops: clients that lose their connection now did not disconnect

    def add(self, received: ReceivedRequest) -> None:
        self.requests.append(received)
        if self.new_requests.qsize() < LIMITS.requests:
            self.new_requests.put_nowait(received)

    def add_disconnect(self, received: ReceivedRequest) -> None:
        if self.closed or received.dropped or received.disconnected_at is not None:
            return
        received.disconnected_at = time.monotonic()
        if self.disconnect_times.qsize() < LIMITS.requests:
            self.disconnect_times.put_nowait(received.disconnected_at)


class CountedAnswer(msgspec.Struct):
    """An answer that the gateway began, and the usage in the last event that was sent with one."""

    bearer: str | None  # the API key of the request
    response_id: str
    usage: Usage | None = None


class Service:
    """The state of a gateway: received requests, stored responses, prompt cache, encrypted reasoning."""

    def __init__(
        self,
        scenario: str,
        api_key: str | None,
        settings: FaultSettings | None = None,
        model: Model | None = None,
        *,
        strict: bool = False,
        cache: CacheSettings | None = None,
        prompts: PromptSettings | None = None,
    ) -> None:
        self.prompts = prompts or PromptSettings()
        self._reasoning = ReasoningRegistry() if strict else None
        self._model = model
        self.scenario = scenario
        self.settings = settings or FaultSettings()
        self.store = ResponseStore()
        self.log = RequestLog()
        self._digests: set[bytes] = set()
        self.counted: deque[CountedAnswer] = deque(maxlen=LIMITS.answers)
        self.cache = PromptCache(cache)
        self._api_key = api_key

    def check_key(self, bearer: str | None) -> None:
        """Reject a missing or wrong API key, if the gateway requires one."""
        if self._api_key is None:
            return
        if bearer is None:
            message = "The API key is missing. Send it as `Authorization: Bearer KEY`."
            raise RequestRejected(401, "missing_api_key", message, param="Authorization")
        if not hmac.compare_digest(bearer.encode(), self._api_key.encode()):
            raise RequestRejected(401, "invalid_api_key", "The API key is wrong.", param="Authorization")

    def choose_scenario(self, headers: Mapping[str, str], body: Any) -> str:
        """Return the scenario of the header, else of the last user message, else of the server."""
        from_header = headers.get(SCENARIO_HEADER)
        from_message = None
        if isinstance(body, Mapping):  # other protocols call the input `prompt` or `messages`
            names = ("input", "prompt", "messages")
            from_message = find_fault_name(next((body[name] for name in names if name in body), None))
        return from_header or from_message or self.scenario

    def is_replaced(self, scenario: Scenario, kind: str, body: object) -> bool:
        """Whether the scenario replaces the response; with `once`, only to the first of equal requests.

        The order of the members of an object does not matter: some clients change it when they retry.
        """
        if not scenario.applies(body if isinstance(body, dict) else {}):
            return False
        if not scenario.once:
            return True
        digest = hashlib.sha256(kind.encode() + b"\0" + msgspec.json.encode(body, order="sorted")).digest()
        is_first = digest not in self._digests
        self._digests.add(digest)
        return is_first

    def accept(self, body: Mapping[str, Any], *stores: ResponseStore) -> AcceptedRequest:
        """Validate a request for a response. Previous responses are in `stores` or in that of the server."""
        if self._reasoning is not None:
            check_schema(body)
            check_rules(body.get("input"))
        create_body = read_shape(body, CreateBody, "")
        if create_body.background:
            reject("unsupported_parameter", "background is not available. Remove it.", "background")
        request = accept_request(create_body, [*stores, self.store], self.cache, self.prompts)
        if self._reasoning is not None:
            self._reasoning.check(create_body.model, request.items)
        return request

    def count(self, body: Mapping[str, Any]) -> int:
        """Return the input tokens of a request."""
        # Only the prompt is counted: it must fit into the window, without the output limit.
        prompts = msgspec.structs.replace(self.prompts, shared=False)
        return accept_request(read_shape(body, CreateBody, ""), [self.store], prompts=prompts).input_tokens

    def make_steps(
        self,
        request: AcceptedRequest,
        scenario: Scenario,
        *stores: ResponseStore,
        bearer: str | None = None,
    ) -> Iterator[Step]:
        """Yield the steps of the answer. The response is stored before its final event is yielded.

        It is stored in `stores` and in the store of the server. The API key is for `counted`.
        """
        answer_count = CountedAnswer(bearer, request.id)
        self.counted.append(answer_count)
        custom_answer = self._model(request) if self._model else None
        answer = scenario.answer(custom_answer or make_answer(request, scenario.words, self.settings.pace))
        steps = scenario.events(make_events(request, answer, scenario.reasoning), self.settings)
        for step in number_events(steps) if scenario.numbered else steps:
            if isinstance(step, dict) and step["type"] in ("response.completed", "response.incomplete"):
                self._store(request, step["response"]["output"], stores)
            yield step
            # Now the step has been sent: a client that has disconnected has not received the usage.
            if isinstance(step, dict) and "response" in step:
                answer_count.usage = read_usage(step["response"].get("usage")) or answer_count.usage

    def _store(
        self, request: AcceptedRequest, output: Sequence[dict[str, Any]], stores: Sequence[ResponseStore]
    ) -> None:
        items = (*request.items, *output)
        count = self.prompts.count_text
        self.cache.use(make_preface(request.body, count), make_units(items, count))
        if self._reasoning is not None:
            self._reasoning.add(request.body.model, output)
        for store in [*stores, self.store] if request.body.store is not False else stores:
            store.add(request.id, items)

    def compact(self, body: Mapping[str, Any]) -> Resource:
        """Return the compaction of a conversation: a description of it as encrypted content."""
        request = accept_compaction(read_shape(body, CompactBody, ""), [self.store])
        summary = " ".join(describe(request.items, request.body.instructions, ()))
        return make_compaction(request, summary)
