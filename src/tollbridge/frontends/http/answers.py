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
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import cached_property
from typing import Any

import msgspec
from aiohttp import web

from tollbridge.compat.repairs import find_repair
from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.front_end_engine import FrontEndEngine
from tollbridge.frontends.http.callers import find_conversation
from tollbridge.frontends.http.limits import LIMITS
from tollbridge.protocols import feature_headers
from tollbridge.protocols.answer import AnswerEncoder
from tollbridge.protocols.caller import CallerCodec, encode_json
from tollbridge.types.errors import BridgeError, BudgetExceeded, NotFound, RequestError
from tollbridge.types.events import Event
from tollbridge.types.media import fingerprint
from tollbridge.types.messages import (
    ChatRequest,
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
# The header of the caller that is forwarded besides those that select features of the protocols. No other is:
# the caller's key is for this server.
_AFFINITY_HEADER = "x-session-affinity"
# Headers that describe the connection or the encoding of the body, which are not the caller's.
_CONNECTION_HEADERS = frozenset(
    "connection content-encoding content-length keep-alive server date set-cookie trailer transfer-encoding "
    "upgrade".split()
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


class _Refusal(web.Response):
    """The error response of a gateway, kept while the request is repaired."""


class _Call(msgspec.Struct, dict=True):
    """A request of a caller, and what is needed to answer it. Its body is decoded once, on first use."""

    request: web.Request
    codec: CallerCodec
    body: bytes
    account: Account
    new_response: NewResponse

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        return _read_object(self.body)

    @cached_property
    def chat(self) -> ChatRequest:
        return self.codec.decode(self.fields, self.request.headers).request


class AnswerService:
    """Answers requests with one account. `find_account` returns it with its current key."""

    def __init__(self, engine: Engine, find_account: Callable[[], Awaitable[Account]]) -> None:
        self._engine = engine
        self._front_end = FrontEndEngine(engine)
        self._load_account = find_account
        self._account: Account | None = None
        self._plain_models: dict[tuple[str, str], bool] = {}
        self._checked_at = -math.inf  # by the monotonic clock
        self._reported_omissions: set[str] = set()
        self._memory = ReasoningMemory()

    async def _find_account(self) -> Account:
        """Return the account. Keys and profiles are read again after a few seconds: they can change."""
        now = time.monotonic()
        if self._account is None or now - self._checked_at > LIMITS.recheck_seconds:
            self._account = await self._load_account()
            self._plain_models.clear()
            self._checked_at = now
        return self._account

    async def answer(
        self,
        request: web.Request,
        codec: CallerCodec,
        body: bytes | None = None,
        new_response: NewResponse = StreamedResponse,
    ) -> web.StreamResponse:
        """Answer a request with this body, or its own, by a stream that is written to a new response.

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
        call = _Call(request, codec, body, account, new_response)
        if not self._may_forward(model, account, codec):
            return await self._translate(call)
        conversation = find_conversation(msgspec.structs.asdict(head), request.headers)
        try:
            response = await self._forward(call, model, conversation)
        except BudgetExceeded:
            if call.chat.max_output_tokens is not None:
                raise
            # A turn can limit the answer to what the budget allows; a forwarded request stays as it is.
            return await self._translate(call)
        if not isinstance(response, _Refusal):
            return response
        try:
            return await self._translate(call)
        except BridgeError:
            return response  # the repaired request was refused as well

    async def compact(self, request: web.Request, codec: CallerCodec) -> web.StreamResponse:
        """Forward a request to compact a conversation, which only gateways of the same protocol can do.

        Raises:
            NotFound: The gateway speaks another protocol.
        """
        body = await request.read()
        model, account = _read_head(body).model, await self._find_account()
        if account.backend != codec.name or codec.compact_path is None:
            message = "The gateway's protocol has no compaction of conversations."
            raise NotFound(message, status=404, code="not_found")
        async with self._front_end.forward(model, codec.compact_path, body, account) as forwarded:
            headers = _passed_headers(forwarded.headers)
            data = b"".join([chunk async for chunk in forwarded.chunks()])
            return web.Response(status=forwarded.status, headers=headers, body=data)

    async def count(self, request: web.Request, codec: CallerCodec) -> web.StreamResponse:
        """Answer with the input tokens of a request: exact if the gateway counts, or else estimated."""
        body = _read_object(await request.read())
        account = await self._find_account()
        if (name := self._engine.settings.aliases.get(str(body.get("model")))) is not None:
            body = {**body, "model": name}
        chat = codec.decode(body, request.headers).request
        may_pass = self._may_forward(chat.model, account, codec)
        tokens = await self._front_end.count_request(chat, account, body=body if may_pass else None)
        return _json_response(codec.encode_count(tokens))

    async def models(self, codec: CallerCodec, name: str | None = None) -> web.StreamResponse:
        """Answer with the model list, or with the entry of one model.

        Raises:
            NotFound: The list has no such model.
        """
        models = await self._engine.models(await self._find_account())
        if name is None:
            return _json_response(codec.encode_models(models))
        name = self._engine.settings.aliases.get(name, name)
        model = next((model for model in models if model.id == name), None)
        if model is None:
            raise NotFound(f"The gateway has no model {name[:80]!r}.", status=404, code="model_not_found")
        return _json_response(codec.encode_model(model))

    def _may_forward(self, model: str, account: Account, codec: CallerCodec) -> bool:
        if account.backend != codec.name:
            return False
        key = account.base_url, model
        if key not in self._plain_models:
            if len(self._plain_models) >= LIMITS.models:
                self._plain_models.clear()
            self._plain_models[key] = self._front_end.is_plain(model, account)
        return self._plain_models[key]

    async def _forward(self, call: _Call, model: str, conversation: str | None) -> web.StreamResponse:
        """Forward a request. A refusal for a reason that a turn may repair is not sent to the caller."""
        request = call.request
        names = (*feature_headers(), _AFFINITY_HEADER)
        headers = {name: request.headers[name] for name in names if name in request.headers}
        async with self._front_end.forward(
            model,
            call.codec.path,
            call.body,
            call.account,
            decode=lambda: call.chat,
            headers=headers,
            initiator=_program_name(request.headers),
            conversation=conversation,
        ) as forwarded:
            headers = _passed_headers(forwarded.headers)
            error = forwarded.result.error
            if error is not None and _may_repair(error, call):
                data = b"".join([chunk async for chunk in forwarded.chunks()])
                return _Refusal(status=forwarded.status, headers=headers, body=data)
            response = call.new_response(status=forwarded.status, headers=headers)
            await response.prepare(request)
            try:
                async with aclosing(forwarded.chunks()) as chunks:
                    async for chunk in chunks:
                        await response.write(chunk)
            except BridgeError:
                # The status is sent: an incomplete body tells the caller that the answer is cut.
                if request.transport is not None:
                    request.transport.abort()
                return response
            await response.write_eof()
            return response

    async def _translate(self, call: _Call) -> web.StreamResponse:
        body, headers = call.fields, call.request.headers
        codec, account = call.codec, call.account
        origin = Origin.of(str(body.get("model")), account.base_url)
        native = origin if account.backend == codec.name else None
        decoded = codec.decode(body, headers, native)
        if all(message.role is Role.SYSTEM for message in decoded.request.messages):
            raise RequestError("The request contains no message. Send at least one.")
        self._report(decoded.omissions)
        chat = msgspec.structs.replace(
            decoded.request,
            messages=self._memory.restore(decoded.request.messages),
            conversation=find_conversation(body, headers),
        )
        encoder = codec.encoder(decoded)
        initiator = _program_name(headers)
        async with self._engine.turn(chat, account, source=body, initiator=initiator) as turn:
            if decoded.stream:
                response = await _send_stream(call, turn.batches(), encoder)
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
            if omission not in self._reported_omissions and len(self._reported_omissions) < LIMITS.models:
                self._reported_omissions.add(omission)
                log.warning("%s", omission)


def _may_repair(error: BridgeError, call: _Call) -> bool:
    """Return whether a turn, which makes every history valid, may succeed where the request failed."""
    if error.kind == "invalid_request":
        return True
    try:
        return find_repair(error, call.chat, LearnedQuirks()) is not None
    except RequestError:
        return False


async def _send_stream(
    call: _Call, batches: AsyncGenerator[list[Event]], encoder: AnswerEncoder
) -> web.StreamResponse:
    """Send a streamed answer. The status is sent with the first event: an earlier error has its own."""
    codec = call.codec
    first: list[Event] = await anext(batches, [])
    response = call.new_response(headers={"content-type": EVENT_STREAM, "cache-control": "no-cache"})
    await response.prepare(call.request)
    await response.write(codec.write([*encoder.start(), *encoder.encode(first)]))
    failure: BridgeError | None = None
    try:
        async for batch in batches:
            if wire_events := encoder.encode(batch):
                await response.write(codec.write(wire_events))
    except BridgeError as error:
        failure = error
    await response.write(codec.write_end(encoder.finish(failure)))
    await response.write_eof()
    return response


def error_response(codec: CallerCodec, error: BridgeError, status: int | None = None) -> web.Response:
    """Return an error in the form of the caller's protocol."""
    status = status or codec.error_status(error)
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    if error.request_id is not None:
        # The names of the two vendors: each SDK reads its own.
        headers["request-id"] = headers["x-request-id"] = error.request_id
    if isinstance(error, BudgetExceeded):
        headers["x-should-retry"] = "false"  # the SDKs of OpenAI and Anthropic read it
    body = encode_json(codec.encode_error(error, status))
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _program_name(headers: Mapping[str, str]) -> str | None:
    """Return the name of the calling program, for example `codex_exec` of `codex_exec/0.166.0 (…)`."""
    return headers.get("user-agent", "").partition("/")[0].strip()[: LIMITS.name_characters] or None


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


class ReasoningMemory:
    """The reasoning packs of recent answers, by tool call and by text. The oldest are dropped first.

    A model that reasons needs its signed reasoning back with the tool results. Chat Completions has no field
    for it, and few callers return what they do not know.
    """

    def __init__(self) -> None:
        self._size = 0
        self._packs: OrderedDict[str, DataPart] = OrderedDict()

    def add(self, parts: Iterable[Part], pack: DataPart) -> None:
        """Store the pack of an answer."""
        if (key := _answer_key(parts)) is not None:
            replaced = self._packs.pop(key, None)
            self._size += len(pack.data) - (len(replaced.data) if replaced else 0)
            self._packs[key] = pack
        while self._size > LIMITS.reasoning_bytes:
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
        pack = self._packs.get(_answer_key(message.parts) or "")
        return message if pack is None else Message(message.role, (*message.parts, pack), message.name)


def _answer_key(parts: Iterable[Part]) -> str | None:
    """Return what identifies an answer: its first tool call, or else its text."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, ToolCallPart):
            return f"call {part.call_id}"
        if isinstance(part, TextPart):
            texts.append(part.text)
    text = "".join(texts).strip()
    return f"text {fingerprint(text.encode('utf-8', 'surrogatepass'))}" if text else None
