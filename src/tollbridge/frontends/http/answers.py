"""Answer the requests of callers: forward them unchanged, or translate them.

A request is forwarded byte for byte if the gateway speaks the caller's protocol and nothing is known that
must be changed for the model. If it cannot be forwarded, or if the gateway refuses it, the request is decoded
and runs as a turn of the engine, with repairs, and its events are encoded for the caller.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from hashlib import blake2s
from typing import Any

import msgspec
from aiohttp import web

from tollbridge.compat.repairs import find_repair
from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.front_end import FrontEnd
from tollbridge.frontends.http.callers import find_conversation
from tollbridge.protocols import feature_headers
from tollbridge.protocols.answer import AnswerEncoder
from tollbridge.protocols.caller import Caller, encode_json
from tollbridge.types.errors import BridgeError, BudgetExceeded, NotFound, RequestError
from tollbridge.types.events import Event
from tollbridge.types.messages import (
    DataPart,
    Message,
    Origin,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import read_json

log = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"
# Seconds for which the account and what is known about its models are used without reading them again.
_RECHECK_SECONDS = 2.0
_MODEL_LIMIT = 1000
# The most characters of the name of a calling program.
_NAME_LIMIT = 64
# The header of the caller that is forwarded besides those that select features of the protocols. No other is:
# the caller's key is for this server.
_AFFINITY_HEADER = "x-session-affinity"
# Headers that describe the connection or the encoding of the body, which are not the caller's.
_CONNECTION_HEADERS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "keep-alive",
        "server",
        "date",
        "set-cookie",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

# Creates a response, with the parameters of `web.StreamResponse`.
NewResponse = Callable[..., web.StreamResponse]


class StreamedResponse(web.StreamResponse):
    """A streamed response whose head is sent with the first chunk, in one write."""

    _send_headers_immediately = False  # as in aiohttp's own `Response`; by default the head is sent first


class _Head(msgspec.Struct):
    """The fields that are needed of a body that is forwarded."""

    model: str
    prompt_cache_key: Any = None
    metadata: Any = None


class _Refusal(msgspec.Struct, frozen=True):
    """The error response of a gateway, kept while the request is repaired."""

    status: int
    headers: dict[str, str]
    body: bytes

    def to_response(self) -> web.Response:
        return web.Response(status=self.status, headers=self.headers, body=self.body)


class AnswerService:
    """Answers requests with one account.

    Args:
        engine: Runs the turns.
        find_account: Returns the gateway to use, with its current key.
    """

    def __init__(
        self,
        engine: Engine,
        find_account: Callable[[], Awaitable[Account]],
    ) -> None:
        self._engine = engine
        self._front_end = FrontEnd(engine)
        self._load_account = find_account
        self._account: Account | None = None
        self._plain_models: dict[tuple[str, str], bool] = {}
        self._checked_at = -math.inf  # by the monotonic clock
        self._reported_omissions: set[str] = set()
        self._memory = ReasoningMemory()

    async def _find_account(self) -> Account:
        """Return the account. Keys and profiles are read again after a few seconds: they can change."""
        now = time.monotonic()
        if self._account is None or now - self._checked_at > _RECHECK_SECONDS:
            self._account = await self._load_account()
            self._plain_models.clear()
            self._checked_at = now
        return self._account

    async def answer(
        self,
        request: web.Request,
        protocol: Caller,
        body: bytes | None = None,
        new_response: NewResponse = StreamedResponse,
    ) -> web.StreamResponse:
        """Answer a request of a protocol.

        Args:
            request: The request.
            protocol: The protocol of the caller.
            body: The body, if it is not that of `request`.
            new_response: Creates the response that a stream is written to.

        Raises:
            BridgeError: The request failed before anything of the answer was sent.
        """
        if body is None:
            body = await request.read()
        head = _read_head(body)
        model = head.model
        if (name := self._engine.settings.aliases.get(model)) is not None:
            model, body = name, _replace_model(body, name)
        account = await self._find_account()
        if not self._may_forward(model, account, protocol):
            return await self._translate(request, protocol, body, account, new_response)
        conversation = find_conversation(msgspec.structs.asdict(head), request.headers)
        try:
            response = await self._forward(
                request, protocol, body, model, account, new_response, conversation
            )
        except BudgetExceeded:
            if protocol.decode(_read_object(body), request.headers).request.max_output_tokens is not None:
                raise
            # A turn can limit the answer to what the budget allows; a forwarded request stays as it is.
            return await self._translate(request, protocol, body, account, new_response)
        if not isinstance(response, _Refusal):
            return response
        try:
            return await self._translate(request, protocol, body, account, new_response)
        except BridgeError:
            return response.to_response()  # the repaired request was refused as well

    async def compact(self, request: web.Request, protocol: Caller) -> web.StreamResponse:
        """Forward a request to compact a conversation, which only gateways of the same protocol can do.

        Raises:
            NotFound: The gateway speaks another protocol.
        """
        body = await request.read()
        model, account = _read_head(body).model, await self._find_account()
        if account.backend != protocol.name or protocol.compact_path is None:
            message = "The gateway's protocol has no compaction of conversations."
            raise NotFound(message, status=404, code="not_found")
        async with self._front_end.forward(model, protocol.compact_path, body, account) as forwarded:
            headers = _passed_headers(forwarded.headers)
            data = b"".join([chunk async for chunk in forwarded.chunks()])
            return web.Response(status=forwarded.status, headers=headers, body=data)

    async def count(self, request: web.Request, protocol: Caller) -> web.StreamResponse:
        """Answer with the input tokens of a request: exact if the gateway counts, or else estimated."""
        body = _read_object(await request.read())
        account = await self._find_account()
        if (name := self._engine.settings.aliases.get(str(body.get("model")))) is not None:
            body = {**body, "model": name}
        chat = protocol.decode(body, request.headers).request
        may_pass = self._may_forward(chat.model, account, protocol)
        tokens = await self._front_end.count_request(chat, account, body=body if may_pass else None)
        return _json_response(protocol.encode_count(tokens))

    async def models(self, protocol: Caller) -> web.StreamResponse:
        models = await self._engine.models(await self._find_account())
        return _json_response(protocol.encode_models(models))

    async def model(self, name: str, protocol: Caller) -> web.StreamResponse:
        """Answer with one entry of the model list.

        Raises:
            NotFound: The list has no such model.
        """
        models = await self._engine.models(await self._find_account())
        name = self._engine.settings.aliases.get(name, name)
        model = next((model for model in models if model.id == name), None)
        if model is None:
            raise NotFound(f"The gateway has no model {name[:80]!r}.", status=404, code="model_not_found")
        return _json_response(protocol.encode_model(model))

    # Forwarding

    def _may_forward(self, model: str, account: Account, protocol: Caller) -> bool:
        if account.backend != protocol.name:
            return False
        key = account.base_url, model
        if key not in self._plain_models:
            if len(self._plain_models) >= _MODEL_LIMIT:
                self._plain_models.clear()
            self._plain_models[key] = self._front_end.is_plain(model, account)
        return self._plain_models[key]

    async def _forward(
        self,
        request: web.Request,
        protocol: Caller,
        body: bytes,
        model: str,
        account: Account,
        new_response: NewResponse,
        conversation: str | None,
    ) -> web.StreamResponse | _Refusal:
        """Forward a request. A refusal for a reason that a turn may repair is not sent to the caller."""
        names = (*feature_headers(), _AFFINITY_HEADER)
        headers = {name: request.headers[name] for name in names if name in request.headers}
        async with self._front_end.forward(
            model,
            protocol.path,
            body,
            account,
            decode=lambda: protocol.decode(_read_object(body), request.headers).request,
            headers=headers,
            initiator=_program_name(request.headers),
            conversation=conversation,
        ) as forwarded:
            headers = _passed_headers(forwarded.headers)
            error = forwarded.result.error
            if error is not None and self._may_repair(error, request, protocol, body):
                data = b"".join([chunk async for chunk in forwarded.chunks()])
                return _Refusal(forwarded.status, headers, data)
            response = new_response(status=forwarded.status, headers=headers)
            await response.prepare(request)
            try:
                async with aclosing(forwarded.chunks()) as chunks:
                    async for chunk in chunks:
                        await response.write(chunk)
            except BridgeError:
                # The status is sent: an incomplete body tells the caller that the answer is cut.
                _abort(request)
                return response
            await response.write_eof()
            return response

    def _may_repair(self, error: BridgeError, request: web.Request, protocol: Caller, body: bytes) -> bool:
        """Return whether a turn, which makes every history valid, may succeed where the request failed."""
        if error.kind == "invalid_request":
            return True
        try:
            caller = protocol.decode(_read_object(body), request.headers)
        except RequestError:
            return False
        return find_repair(error, caller.request, LearnedQuirks()) is not None

    # Translation

    async def _translate(
        self,
        request: web.Request,
        protocol: Caller,
        data: bytes,
        account: Account,
        new_response: NewResponse,
    ) -> web.StreamResponse:
        body = _read_object(data)
        origin = Origin.of(str(body.get("model")), account.base_url)
        native = origin if account.backend == protocol.name else None
        caller = protocol.decode(body, request.headers, native)
        if all(message.role is Role.SYSTEM for message in caller.request.messages):
            raise RequestError("The request contains no message. Send at least one.")
        self._report(caller.omissions)
        chat = msgspec.structs.replace(
            caller.request,
            messages=self._memory.restore(caller.request.messages),
            conversation=find_conversation(body, request.headers),
        )
        encoder = protocol.encoder(caller)
        initiator = _program_name(request.headers)
        async with self._engine.turn(chat, account, source=body, initiator=initiator) as turn:
            if caller.stream:
                response = await _send_stream(request, turn.batches(), protocol, encoder, new_response)
            else:
                encoder.start()
                async for batch in turn.batches():
                    encoder.encode(batch)
                encoder.finish()
                response = _json_response(encoder.body())
            for pack in turn.result.take_reasoning() if turn.result.outcome == "completed" else ():
                assert isinstance(pack, DataPart)  # noqa: S101 - a pack is a data part
                self._memory.add(turn.result.parts, pack)
            return response

    def _report(self, omissions: Iterable[str]) -> None:
        """Log each kind of omission once: agents send the same with every request."""
        for omission in omissions:
            if omission not in self._reported_omissions and len(self._reported_omissions) < _MODEL_LIMIT:
                self._reported_omissions.add(omission)
                log.warning("%s", omission)


async def _send_stream(
    request: web.Request,
    batches: AsyncGenerator[list[Event]],
    protocol: Caller,
    encoder: AnswerEncoder,
    new_response: NewResponse,
) -> web.StreamResponse:
    """Send a streamed answer. The status is sent with the first event: an earlier error has its own."""
    first: list[Event] = await anext(batches, [])
    response = new_response(headers={"content-type": EVENT_STREAM, "cache-control": "no-cache"})
    await response.prepare(request)
    await response.write(protocol.write([*encoder.start(), *encoder.encode(first)]))
    failure: BridgeError | None = None
    try:
        async for batch in batches:
            if wire_events := encoder.encode(batch):
                await response.write(protocol.write(wire_events))
    except BridgeError as error:
        failure = error
    await response.write(protocol.write_end(encoder.finish(failure)))
    await response.write_eof()
    return response


def error_response(protocol: Caller, error: BridgeError, status: int | None = None) -> web.Response:
    """Return an error in the form of the caller's protocol."""
    status = status or protocol.error_status(error)
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    if error.request_id is not None:
        # The names of the two vendors: each SDK reads its own.
        headers["request-id"] = headers["x-request-id"] = error.request_id
    if isinstance(error, BudgetExceeded):
        headers["x-should-retry"] = "false"  # the SDKs of OpenAI and Anthropic read it
    body = encode_json(protocol.encode_error(error, status))
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _program_name(headers: Mapping[str, str]) -> str | None:
    """Return the name of the calling program, for example `codex_exec` of `codex_exec/0.166.0 (…)`."""
    return headers.get("user-agent", "").partition("/")[0].strip()[:_NAME_LIMIT] or None


def _read_head(body: bytes) -> _Head:
    try:
        return msgspec.json.decode(body, type=_Head)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    if isinstance(_read_object(body).get("model"), str):
        raise RequestError("The request body is not valid JSON.")
    raise RequestError("model must be a string: the name of a model.", param="model")


def _replace_model(body: bytes, model: str) -> bytes:
    """Return a body with another model. All other values keep their bytes."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def _read_object(body: bytes) -> Mapping[str, Any]:
    if not body.strip():
        raise RequestError("The request body is empty. Send a JSON object.")
    try:
        value = read_json(body)
    except ValueError as error:
        raise RequestError(f"The request body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise RequestError("The request body must be a JSON object.")
    return value


def _passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in _CONNECTION_HEADERS}


def _json_response(value: object) -> web.Response:
    return web.Response(body=encode_json(value), content_type="application/json")


def _abort(request: web.Request) -> None:
    """Close the connection without the end of the body."""
    transport = request.transport
    if transport is not None:
        transport.abort() if hasattr(transport, "abort") else transport.close()


# --- Reasoning of recent answers ---
#
# A model that reasons needs its signed reasoning back with the tool results. Chat Completions has no field
# for it, and few callers return what they do not know.

# The most memory of all packs, in bytes.
MEMORY_LIMIT = 32 * 1024 * 1024


class ReasoningMemory:
    """The reasoning packs of recent answers, by tool call and by text. The oldest are dropped first."""

    def __init__(self, limit: int = MEMORY_LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._packs: OrderedDict[str, DataPart] = OrderedDict()

    def add(self, parts: Iterable[Part], pack: DataPart) -> None:
        """Store the pack of an answer."""
        for key in _answer_keys(parts):
            replaced = self._packs.pop(key, None)
            self._size += len(pack.data) - (len(replaced.data) if replaced else 0)
            self._packs[key] = pack
        while self._size > self._limit:
            _, dropped = self._packs.popitem(last=False)
            self._size -= len(dropped.data)

    def restore(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return the messages with the packs of the answers among them."""
        return tuple(self._restore_message(message) for message in messages)

    def _restore_message(self, message: Message) -> Message:
        if message.role is not Role.ASSISTANT or not self._packs:
            return message
        if any(isinstance(part, ThinkingPart) and part.metadata for part in message.parts):
            return message
        for key in _answer_keys(message.parts):
            if (pack := self._packs.get(key)) is not None:
                return Message(message.role, (*message.parts, pack), message.name)
        return message


def _answer_keys(parts: Iterable[Part]) -> Iterator[str]:
    """Yield what identifies an answer: its first tool call, or else its text."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, ToolCallPart):
            yield f"call {part.call_id}"
            return
        if isinstance(part, TextPart):
            texts.append(part.text)
    if text := "".join(texts).strip():
        yield f"text {blake2s(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
