"""The first question of all, put in other ways where it is refused: everything else rests on its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tollbridge.clients.openresponses import OpenResponsesClient, count_body, response_body
from tollbridge.compat.profiles import CompatMemory, LearnedQuirks
from tollbridge.compat.repairs import find_repair
from tollbridge.history.answer import AnswerParts
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.openresponses.wire import Fields
from tollbridge.protocols.sse import SseDecoder
from tollbridge.storage.tracker import BillingAccount, RequestAccounting, UsageTracker
from tollbridge.turn import PreparedRequest
from tollbridge.types.errors import BridgeError, TimedOut
from tollbridge.types.events import Event, Failed, Finished, ReasoningDelta, TextDelta, ToolCall
from tollbridge.types.messages import ChatRequest, Message, Part, Role
from tollbridge.types.models import Model
from tollbridge.types.quirks import Quirks
from tollbridge.types.reasoning import Origin
from tollbridge.types.text import read_json

# SECTION What a step of the examination found: a verdict, a sentence, and what Tollbridge makes of it.

# `well` is as it should be; `amiss` is not, and `unknown` could not be seen.
Verdict = Literal["well", "amiss", "unknown"]


class Finding(msgspec.Struct, frozen=True):
    """`learned` are fields of `Quirks`, also those that are as usual: they were seen to be."""

    verdict: Verdict
    sentence: str
    # What Tollbridge does about it, or what the person can do.
    remedy: str = ""
    learned: Mapping[str, Any] = {}


def passed(sentence: str, **learned: Any) -> Finding:
    return Finding("well", sentence, "", learned)


def failed(sentence: str, remedy: str, **learned: Any) -> Finding:
    return Finding("amiss", sentence, remedy, learned)


def unknown(sentence: str, remedy: str = "") -> Finding:
    return Finding("unknown", sentence, remedy)


def inconclusive(error: BridgeError) -> Finding:
    """A failure that says nothing about the question: the way was broken, or the server busy."""
    return unknown(f"Could not be seen: {reason(error)}", "Nothing is assumed; run doctor again to find out.")


def reason(error: BridgeError) -> str:
    """The server's own words, short enough for a list."""
    message = " ".join(error.message.split()) or error.kind
    message = message if len(message) <= 160 else f"{message[:160]}…"
    told = message if message[-1] in ".!?…" else f"{message}."
    return f"{told[:-1]} (HTTP {error.status})." if error.status and str(error.status) not in told else told


# SECTION What the steps of an examination share: the way to the server, its bounds, and what is known so far.

# Small answers: enough for a call of a tool, and for a model that thinks a little first.
OUTPUT_TOKENS = 64
# A server that is busy, or that failed, is asked once more; it is waited for no longer than this.
LONGEST_WAIT = 5.0
BODY_LIMIT = 4 * 1024 * 1024

# Each question has a connection of its own: some servers close one after a stream, without a word.
ALONE = {"connection": "close"}
# What a server says of a request it does not take. Any other failure says nothing of the request.
_REFUSALS = frozenset({"invalid_request", "not_found", "server", "content_filtered"})


class ProbeLimits(msgspec.Struct, frozen=True):
    """Seconds for one answer and for all of them, and how many may be asked for."""

    answer: float = 60.0
    whole: float = 600.0
    requests: int = 48


class Reply(msgspec.Struct, frozen=True):
    """One reply, whole: its bytes, what they mean, and what went wrong."""

    status: int | None = None
    headers: Mapping[str, str] = {}
    body: bytes = b""
    events: tuple[Event, ...] = ()
    error: BridgeError | None = None
    seconds: float = 0.0

    @property
    def refusal(self) -> BridgeError | None:
        """The error, where the server took exception to the request itself."""
        return self.error if self.error is not None and self.error.kind in _REFUSALS else None

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ReasoningDelta))

    @property
    def calls(self) -> list[ToolCall]:
        return [event for event in self.events if isinstance(event, ToolCall)]

    @property
    def finished(self) -> Finished | None:
        return next((event for event in self.events if isinstance(event, Finished)), None)

    def number(self, name: str) -> int | None:
        """A number of a reply that is one JSON object."""
        try:
            return Fields(read_json(self.body)).number(name)
        except ValueError:
            return None

    def frames(self) -> list[tuple[bytes, bytes]]:
        decoder = SseDecoder()
        return decoder.feed(self.body) + decoder.close()

    def wire_events(self) -> list[dict[str, Any]]:
        """The events as they came, those that are JSON objects."""
        found: list[dict[str, Any]] = []
        for _, data in self.frames():
            try:
                value = read_json(data)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return found


class ProbeSession:
    """Belongs to one examination. `quirks` are what is known of the server so far."""

    def __init__(
        self,
        client: OpenResponsesClient,
        model: str | None = None,
        bounds: ProbeLimits | None = None,
        tracker: UsageTracker | None = None,
        payer: BillingAccount | None = None,
    ) -> None:
        self._tracker = tracker or UsageTracker()
        self._payer = payer or BillingAccount()
        self.bounds = bounds or ProbeLimits()
        self.client = client
        self.model = model
        self.quirks = Quirks()
        self.models: tuple[Model, ...] = ()
        self.listed: Reply | None = None  # the reply to the first request of all
        self.opening: FirstAnswer | None = None  # the first question, and its answer
        self.called: tuple[Part, ...] = ()  # an answer with calls, as an editor keeps it
        self.thinking: Reply | None = None  # the last answer that could be thought about
        self.requests = 0
        self._ends = time.monotonic() + self.bounds.whole

    @property
    def first(self) -> Reply:
        """The first answer; an empty one where there is none."""
        return self.opening.heard if self.opening else Reply()

    def question(self, *messages: Message | str, **fields: Any) -> ChatRequest:
        """A small request. A text is something the user says."""
        said = tuple(Message(Role.USER, each) if isinstance(each, str) else each for each in messages)
        return ChatRequest(
            model=self.model or "", messages=said, **{"max_output_tokens": OUTPUT_TOKENS, **fields}
        )

    def without(self, *fields: str) -> frozenset[str]:
        """What is left out so far, and these."""
        return self.quirks.without.union(fields)

    def kept(self, heard: Reply) -> tuple[Part, ...]:
        """An answer as an editor keeps it: calls with their signatures, reasoning with its proof."""
        answer = AnswerParts(origin=Origin.of(self.model or "", self.client.base_url))
        return (*answer.take(heard.events), *answer.close()[0])

    def is_of_this_call(self, error: BridgeError, request: ChatRequest) -> bool:
        """Whether a refusal is of the very call that was sent back (its signature is missing, or wrong). It
        says nothing of other calls."""
        cure = find_repair(error, request, LearnedQuirks(self.quirks))
        return cure is not None and bool(cure.learned.spoken)

    async def ask(self, request: ChatRequest, **quirks: Any) -> Reply:
        """The answer to a request, put as the quirks say but for those given."""
        return await self.send("POST", "/responses", self.body(request, **quirks))

    def body(self, request: ChatRequest, **quirks: Any) -> bytes:
        """What the bridge would send to a server with these quirks, to the byte."""
        return response_body(self._legal(request, **quirks))

    async def count(self, request: ChatRequest) -> Reply:
        """How many tokens a request would come to, in the server's own count."""
        return await self.send("POST", "/responses/input_tokens", count_body(self._legal(request)))

    def _legal(self, request: ChatRequest, **quirks: Any) -> ChatRequest:
        known = msgspec.structs.replace(self.quirks, **quirks)
        return PreparedRequest(
            request, self.client.base_url, CompatMemory(lambda _url, _model: known)
        ).request

    async def send(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """One request, and one more where the first says nothing of it: servers are busy, and fail."""
        heard = await self._once(method, path, body)
        if heard.error is None or not heard.error.transient:
            return heard
        await asyncio.sleep(min(heard.error.retry_after or 0.5, LONGEST_WAIT))
        return await self._once(method, path, body)

    async def _once(self, method: str, path: str, body: bytes | None) -> Reply:
        left = self._ends - time.monotonic()
        if self.requests >= self.bounds.requests or left <= 0:
            return Reply(error=TimedOut("The examination has used up its time or its requests."))
        self.requests += 1
        if path != "/responses":
            return await self._bounded(method, path, body, min(self.bounds.answer, left))
        account = self.account()
        try:
            heard = await self._bounded(method, path, body, min(self.bounds.answer, left))
            account.finished = heard.finished
            account.close("completed" if heard.error is None else "failed", heard.error)
            return heard
        finally:
            account.close("cancelled")

    def account(self) -> RequestAccounting:
        """Of a question that is about to be put to the model: an examination costs as any turn does."""
        return RequestAccounting(self.model or "", self._tracker, self._payer)

    async def _bounded(self, method: str, path: str, body: bytes | None, seconds: float) -> Reply:
        began = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                return await self._heard(method, path, body, began)
        except TimeoutError:
            return Reply(error=TimedOut(f"No whole answer came within {seconds:.0f} s."), seconds=seconds)
        except BridgeError as error:
            return Reply(error=self.client.complete_error(error), seconds=time.monotonic() - began)

    async def _heard(self, method: str, path: str, body: bytes | None, began: float) -> Reply:
        async with self.client.send(method, path, body, headers=ALONE) as reply:
            data = await reply.read(BODY_LIMIT)
            events = _events(path, reply.status, reply.headers, data)
            error = next((event.error for event in events if isinstance(event, Failed)), None)
            if error is not None:
                error = self.client.complete_error(error, reply)
            return Reply(reply.status, reply.headers, data, events, error, time.monotonic() - began)


def _events(path: str, status: int, headers: Mapping[str, str], data: bytes) -> tuple[Event, ...]:
    if path != "/responses" and status < 400:
        return ()  # a list or a number, and no turn
    decoder = decoder_for("openresponses", status, headers)
    return tuple(decoder.feed(data) + decoder.close())


# SECTION The first question of all, put in other ways where it is refused: everything else rests on its answer.

HELLO = "Say hello in one short sentence."
# Other ways to put the plainest request, for a server that refuses it; each is a guess at the reason.
_OTHERWISE: tuple[dict[str, Any], ...] = (
    {"without": frozenset({"store"})},
    {"text_as": "array"},
    {"without": frozenset({"max_output_tokens"})},
    {"without": frozenset({"store", "max_output_tokens"})},
    {"text_as": "array", "without": frozenset({"store", "max_output_tokens"})},
)


class FirstAnswer(msgspec.Struct, frozen=True):
    """The answer, how it had to be asked for, and why not as usual."""

    heard: Reply
    quirks: dict[str, Any]
    refusal: BridgeError | None


async def find_first_answer(bench: ProbeSession) -> FirstAnswer:
    first = await bench.ask(bench.question(HELLO))
    if first.refusal is None:
        return FirstAnswer(first, {}, None)
    for quirks in _OTHERWISE:
        heard = await bench.ask(bench.question(HELLO), **quirks)
        if heard.refusal is None:
            return FirstAnswer(heard, quirks, first.error)
    return FirstAnswer(first, {}, first.error)
