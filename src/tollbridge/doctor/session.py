"""What the checks of an examination share: findings, replies, the connection and its limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import msgspec

from tollbridge.answer import Answer
from tollbridge.clients.base import GatewayClient, encode_body
from tollbridge.compat.memory import CompatMemory
from tollbridge.compat.repairs import find_repair
from tollbridge.history.answer import AnswerEvents
from tollbridge.observers.usage import record_request
from tollbridge.prepare import PreparedRequest
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.sse import SseDecoder
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.types.errors import BridgeError, TimedOut
from tollbridge.types.events import Finished, ToolCall
from tollbridge.types.messages import ChatRequest, Message, Origin, Part, Role
from tollbridge.types.models import Model
from tollbridge.types.quirks import LearnedQuirks, Quirks
from tollbridge.types.text import read_json

# `well`: works as specified (`passed`); `amiss`: does not (`failed`); `unproven`: accepted, not seen to
# arrive at the model; `unknown`: could not be tested. The `--json` output contains these words.
Verdict = Literal["well", "amiss", "unproven", "unknown"]


class Finding(msgspec.Struct, frozen=True):
    """The result of one check.

    Attributes:
        sentence: What was found.
        remedy: What Tollbridge does about it, or what the user can do.
        learned: Fields of `Quirks`, including those that were found to have their default value.
    """

    verdict: Verdict
    sentence: str
    remedy: str = ""
    learned: Mapping[str, Any] = {}


def passed(sentence: str, **learned: Any) -> Finding:
    return Finding("well", sentence, "", learned)


def failed(sentence: str, remedy: str, **learned: Any) -> Finding:
    return Finding("amiss", sentence, remedy, learned)


def rejected(problem: str, error: BridgeError | None, remedy: str, **learned: Any) -> Finding:
    """Return the finding that something fails, with the error that shows it."""
    return failed(f"{problem}: {describe_error(error) if error else ''}", remedy, **learned)


def unknown(sentence: str, remedy: str = "") -> Finding:
    return Finding("unknown", sentence, remedy)


class Inconclusive(Exception):
    """Raised in a check after an error that it did not cause, such as a network error or overload."""

    def __init__(self, error: BridgeError) -> None:
        super().__init__(error.message)
        self.finding = unknown(f"Could not be determined: {describe_error(error)}", "Run doctor again.")


def describe_error(error: BridgeError) -> str:
    """Return the message of an error as one sentence of limited length, with the HTTP status."""
    message = " ".join(error.message.split()) or error.kind
    message = message if len(message) <= 160 else f"{message[:160]}…"
    sentence = message if message[-1] in ".!?…" else f"{message}."
    if error.status and str(error.status) not in sentence:
        return f"{sentence[:-1]} (HTTP {error.status})."
    return sentence


# The kinds of errors by which a server rejects a request. Other errors say nothing about the request.
_REJECTIONS = frozenset({"invalid_request", "not_found", "server", "content_filtered"})


class Reply(msgspec.Struct, frozen=True):
    """A complete reply: its bytes, the decoded answer, and the error if there is one."""

    status: int | None = None
    headers: Mapping[str, str] = {}
    body: bytes = b""
    answer: Answer = msgspec.field(default_factory=Answer)
    error: BridgeError | None = None
    seconds: float = 0.0

    @property
    def rejection(self) -> BridgeError | None:
        """The error, if the server rejected the request itself."""
        return self.error if self.error is not None and self.error.kind in _REJECTIONS else None

    @property
    def calls(self) -> list[ToolCall]:
        return [event for event in self.answer.events if isinstance(event, ToolCall)]

    @property
    def input_tokens(self) -> int | None:
        """The reported tokens of the prompt; `None` if the server does not count them."""
        usage = self.answer.finished.usage if self.answer.finished else None
        return usage.input_tokens if usage is not None and usage.known else None

    def quotes(self, word: str) -> bool:
        """Return whether the text of the answer contains a word, ignoring case."""
        return word.lower() in self.answer.text.lower()

    def frames(self) -> list[tuple[bytes, bytes]]:
        """Return the server-sent events of the body: name and data."""
        decoder = SseDecoder()
        return decoder.feed(self.body) + decoder.close()

    def wire_events(self) -> list[dict[str, Any]]:
        """Return the data of the server-sent events that are JSON objects."""
        events: list[dict[str, Any]] = []
        for _, data in self.frames():
            try:
                value = read_json(data)
            except ValueError:
                continue
            if isinstance(value, dict):
                events.append(value)
        return events


class Arrival(msgspec.Struct, frozen=True):
    """Whether content reached the model: how many input tokens it adds, or why that is not known."""

    added: int | None
    problem: str = ""

    @property
    def proven(self) -> bool:
        return self.added is not None and self.added > 0

    @property
    def reason(self) -> str:
        if self.proven:
            return f"{self.added} input tokens"
        return self.problem or "no additional input tokens"


class FirstAnswer(msgspec.Struct, frozen=True):
    """The reply to the simplest request, the quirks that it needed, and the error without them."""

    reply: Reply
    quirks: dict[str, Any]
    rejection: BridgeError | None


# Each request has its own connection: some servers close a connection after a stream without announcing it.
CLOSE_CONNECTION = {"connection": "close"}


class ProbeLimits(msgspec.Struct, frozen=True):
    """The limits of an examination.

    Attributes:
        answer: Seconds for one reply.
        total: Seconds for all replies.
        requests: The number of requests.
        output_tokens: Tokens of an answer: enough for a tool call, also after a little reasoning.
        retry_wait: Seconds before a request that failed with a transient error is sent again.
        body_size: Bytes of a reply. A model list can have megabytes.
    """

    answer: float = 60.0
    total: float = 600.0
    requests: int = 64
    output_tokens: int = 64
    retry_wait: float = 5.0
    body_size: int = 4 * 1024 * 1024


class ProbeSession:
    """Sends the requests of one examination, and holds what is known about the server so far.

    Attributes:
        measured: The quirks found so far.
        models_reply: The reply to the first request, for the model list.
        tool_call_parts: An answer with tool calls, as parts that an editor would store.
        reasoning_reply: The last reply to a request with a reasoning effort.
    """

    def __init__(
        self,
        client: GatewayClient,
        model: str | None = None,
        limits: ProbeLimits | None = None,
        tracker: UsageTracker | None = None,
        account: BillingAccount | None = None,
    ) -> None:
        self._tracker = tracker or UsageTracker()
        self._account = account or BillingAccount()
        self.limits = limits or ProbeLimits()
        self.client = client
        self.model = model
        self.measured = Quirks()
        self.models: tuple[Model, ...] = ()
        self.requests = 0
        self.models_reply = Reply()
        self.first_answer: FirstAnswer | None = None
        self.tool_call_parts: tuple[Part, ...] = ()
        self.reasoning_reply: Reply | None = None
        self._input_tokens: dict[bytes, int | None] = {}  # as reported, by request body
        self._deadline = time.monotonic() + self.limits.total

    @property
    def first_reply(self) -> Reply:
        """The reply of the first answer; an empty reply if there is none."""
        return self.first_answer.reply if self.first_answer else Reply()

    def build_request(self, *messages: Message | str, **fields: Any) -> ChatRequest:
        """Return a request with a small output limit. Strings become user messages."""
        return ChatRequest(
            model=self.model or "",
            messages=tuple(
                Message(Role.USER, message) if isinstance(message, str) else message for message in messages
            ),
            **{"max_output_tokens": self.limits.output_tokens, **fields},
        )

    def without(self, *fields: str) -> frozenset[str]:
        """Return the fields that are omitted so far, and these."""
        return self.measured.without.union(fields)

    def answer_parts(self, reply: Reply) -> tuple[Part, ...]:
        """Return a reply as parts that an editor would store, including signatures of calls and reasoning."""
        answer = Answer(Origin.of(self.model or "", self.client.base_url))
        answer.add(AnswerEvents().take(reply.answer.events))
        return (*answer.take_parts(), *answer.take_reasoning())

    def concerns_this_call(self, error: BridgeError, request: ChatRequest) -> bool:
        """Return whether an error is about the tool call in this request, because of its signature.

        Such an error says nothing about other calls.
        """
        repair = find_repair(error, request, LearnedQuirks(self.measured))
        return repair is not None and bool(repair.learned.calls_as_text)

    async def ask(self, request: ChatRequest, **quirks: Any) -> Reply:
        """Send a request to the model, with the quirks found so far; `quirks` override them."""
        body = self.body(request, **quirks)
        reply = await self.send("POST", self.client.protocol.path, body)
        self._input_tokens[body] = reply.input_tokens
        return reply

    async def probe(self, request: ChatRequest, **quirks: Any) -> Reply:
        """Send a request like `ask`, in a check of whether the server accepts it.

        Raises:
            Inconclusive: The request failed for another reason.
        """
        reply = await self.ask(request, **quirks)
        if reply.error is not None and reply.rejection is None:
            raise Inconclusive(reply.error)
        return reply

    async def compare(self, reply: Reply, smaller: ChatRequest, **quirks: Any) -> Arrival:
        """Compare the input tokens of a reply with those of a request that lacks some of the content.

        The content reached the model if it adds input tokens. The request is only sent if it was not before.
        """
        if reply.input_tokens is None:
            return Arrival(None, "the server does not report usage")
        body = self.body(smaller, **quirks)
        if body not in self._input_tokens:
            await self.ask(smaller, **quirks)
        tokens = self._input_tokens[body]
        if tokens is None:
            return Arrival(None, "a request without it failed")
        return Arrival(reply.input_tokens - tokens)

    def body(self, request: ChatRequest, **quirks: Any) -> bytes:
        """Return the exact bytes that a turn would send to a server with these quirks."""
        return self.client.encode_request(self._normalize(request, **quirks))

    async def count(self, request: ChatRequest) -> Reply:
        """Send a request to the server's token-count endpoint."""
        protocol = self.client.protocol
        assert protocol.counter is not None  # noqa: S101 - of every protocol that is examined
        body = protocol.counter.select(protocol.encode(self._normalize(request), stream=True).body)
        return await self.send("POST", protocol.counter.path, encode_body(body))

    def _normalize(self, request: ChatRequest, **quirks: Any) -> ChatRequest:
        all_quirks = msgspec.structs.replace(self.measured, **quirks)
        memory = CompatMemory(lambda _url, _model: all_quirks)
        return PreparedRequest(request, self.client.base_url, memory).request

    async def send(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Send a request, and once more after a transient error or a rejection.

        A server may reject one request by chance, and a rejection becomes a lasting quirk.
        """
        reply = await self._send_once(method, path, body)
        if reply.error is not None and reply.error.transient:
            await asyncio.sleep(min(reply.error.retry_after or 0.5, self.limits.retry_wait))
        elif reply.rejection is None:
            return reply
        return await self._send_once(method, path, body)

    async def _send_once(self, method: str, path: str, body: bytes | None) -> Reply:
        remaining = self._deadline - time.monotonic()
        if self.requests >= self.limits.requests or remaining <= 0:
            return Reply(error=TimedOut("Stopped: time or request limit reached."))
        self.requests += 1
        timeout = min(self.limits.answer, remaining)
        if path != "/responses":
            return await self._send_with_timeout(method, path, body, timeout)
        async with self.record() as answer:
            reply = await self._send_with_timeout(method, path, body, timeout)
            answer.add(event for event in reply.answer.events if isinstance(event, Finished))
            answer.end("completed" if reply.error is None else "failed", reply.error)
            return reply

    def record(self) -> AbstractAsyncContextManager[Answer]:
        """Record a request to the model: an examination costs as much as other turns."""
        return record_request(self.model or "", self._tracker, self._account)

    async def _send_with_timeout(self, method: str, path: str, body: bytes | None, seconds: float) -> Reply:
        started = time.monotonic()
        protocol = self.client.protocol
        answer = Answer()
        try:
            async with (
                asyncio.timeout(seconds),
                self.client.send(method, path, body, headers=CLOSE_CONNECTION) as response,
            ):
                data = await response.read(self.limits.body_size)
        except TimeoutError:
            return Reply(error=TimedOut(f"No complete response within {seconds:.0f} s."), seconds=seconds)
        except BridgeError as error:
            return Reply(error=self.client.complete_error(error), seconds=time.monotonic() - started)
        if path == protocol.path or response.status >= 400:  # a model list or a token count has no events
            decoder = decoder_for(protocol, response.status, response.headers)
            answer.add(decoder.feed(data) + decoder.close())
        failure = answer.error and self.client.complete_error(answer.error, response)
        return Reply(response.status, response.headers, data, answer, failure, time.monotonic() - started)


HELLO = "Say hello in one short sentence."
# Other forms of the simplest request, for a server that rejects it; each is a guess at the reason.
_OTHER_FORMS: tuple[dict[str, Any], ...] = (
    {"without": frozenset({"store"})},
    {"text_as": "array"},
    {"without": frozenset({"max_output_tokens"})},
    {"without": frozenset({"store", "max_output_tokens"})},
    {"text_as": "array", "without": frozenset({"store", "max_output_tokens"})},
)


async def find_first_answer(session: ProbeSession) -> FirstAnswer:
    """Send the simplest request, in other forms if it is rejected. All later checks depend on its answer."""
    first = await session.ask(session.build_request(HELLO))
    if first.rejection is None or first.rejection.kind == "not_found":  # no form helps if the model is wrong
        return FirstAnswer(first, {}, None)
    for quirks in _OTHER_FORMS:
        reply = await session.ask(session.build_request(HELLO), **quirks)
        if reply.rejection is None:
            return FirstAnswer(reply, quirks, first.error)
    return FirstAnswer(first, {}, first.error)
