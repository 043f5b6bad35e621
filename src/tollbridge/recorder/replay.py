"""Recordings played again: the bytes that came then, through the code of today."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tollbridge.clients.ai_sdk import PATHS, AiSdkClient, UiStreamClient
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory, LearnedQuirks
from tollbridge.history.answer import PartsBuilder
from tollbridge.protocols.detect import decoder_for
from tollbridge.recorder import redaction as redact
from tollbridge.recorder.recording import Attempt, Begun, Line, Parts, Recording, Sent, attempts_of
from tollbridge.turn import Turn, TurnResult
from tollbridge.types.errors import BridgeError, Disconnected, RequestError
from tollbridge.types.events import Event, split_failure
from tollbridge.types.messages import ChatRequest, Part
from tollbridge.types.models import Capabilities
from tollbridge.types.reasoning import Origin
from tollbridge.types.text import read_json, write_json

# SECTION Requests then and now: the body that was sent, beside the one that the code of today would send.

# Where two requests differ: the place, what stood there then, and what does now, as JSON.
Difference = tuple[str, str | None, str | None]
_NOTHING = object()
# Made up anew for every request.
_BY_CHANCE = {"auto": ("id",)}


def base_url_of(sent: Sent) -> str:
    """Where the client talked to: the address of a chat endpoint, or a gateway's without the route."""
    return sent.url if sent.protocol == "auto" else sent.url.rpartition("/")[0]


def body_of(sent: Sent) -> dict[str, Any]:
    try:
        body = read_json(sent.body)
    except ValueError as error:
        raise RequestError(f"The recorded body of the request to {sent.url} is not JSON: {error}.") from None
    if not isinstance(body, dict):
        raise RequestError(f"The recorded body of the request to {sent.url} is not a JSON object.")
    return body


def diff_request(sent: Sent, request: ChatRequest) -> list[Difference]:
    """Of a body that was kept. Secrets are blotted out of both."""
    now = redact.hide_secrets(_client(sent).encode_request(request))
    before, after = body_of(sent), read_json(now)
    for name in _BY_CHANCE.get(sent.protocol, ()):
        before.pop(name, None)
        after.pop(name, None)
    return list(_compared("", before, after))


def _client(sent: Sent) -> GatewayClient:
    base_url = base_url_of(sent)
    match sent.protocol:
        case "openresponses":
            return OpenResponsesClient(base_url)
        case "auto":
            return UiStreamClient(base_url)
        case _:
            specs = [spec for spec, path in PATHS.items() if base_url.endswith(path)]
            return AiSdkClient(base_url, spec=specs[0] if specs else 4)


def _compared(place: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            step = f"{place}.{name}" if place else str(name)
            yield from _compared(step, before.get(name, _NOTHING), after.get(name, _NOTHING))
    elif isinstance(before, list) and isinstance(after, list):
        for at in range(max(len(before), len(after))):
            items = [items[at] if at < len(items) else _NOTHING for items in (before, after)]
            yield from _compared(f"{place}[{at}]", *items)
    elif before is _NOTHING or after is _NOTHING or write_json(before) != write_json(after):
        yield place, _shown(before), _shown(after)


def _shown(value: Any) -> str | None:
    return None if value is _NOTHING else write_json(value)


# SECTION Recordings played again: the bytes that came then, through the code of today.

_Shape = TypeVar("_Shape")


class Replay:
    """What playing a recording came to. `parts` are in the lists in which they came, each with its time."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, tuple[Part, ...]]] = []
        # For each request that can be compared, where the one of today differs from what was sent.
        self.requests: list[list[Difference]] = []
        self.turn: TurnResult | None = None
        self.error: BridgeError | None = None

    @property
    def parts(self) -> list[Part]:
        return [part for _, parts in self.reports for part in parts]


async def replay_recording(recording: Recording) -> Replay:
    """The whole way that a turn takes, with the recording in the gateway's place."""
    return await _replay_attempts(recording.begun, recording.attempts)


async def _replay_attempts(begun: Begun, attempts: list[Attempt]) -> Replay:
    played = Replay()
    if begun.request is None:
        raise RequestError("The request was larger than what a recording keeps, and cannot be played.")
    request = _read(begun.request, ChatRequest)
    # How the request was put depended on what was known: where that is not recorded, or the content is
    # blotted out, it cannot be put again.
    compares = begun.learned is not None and not begun.redacted
    for attempt in attempts if compares else ():
        if not attempt.sent.left_out:
            body_of(attempt.sent)  # what is wrong with the recording is not the turn's failure
    gateway = _Gateway(attempts, played.requests if compares else None)
    lessons = CompatMemory()
    if begun.learned is not None:
        lessons.learn(gateway.base_url, request.model, _read(begun.learned, LearnedQuirks))
    abilities = None if begun.abilities is None else _read(begun.abilities, Capabilities)

    builder = PartsBuilder(Origin.of(request.model, gateway.base_url))

    def add_parts(parts: list[Part]) -> None:
        if parts:
            played.reports.append((gateway.at, tuple(parts)))

    try:
        async with Turn(request, gateway, compat=lessons, capabilities=abilities) as turn:
            async for batch in turn.batches():
                add_parts(builder.take(batch))
        add_parts(builder.close())
        played.turn = turn.result
    except BridgeError as error:
        played.error = error
    return played


def _read(recorded: object, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.convert(recorded, shape)
    except msgspec.ValidationError as error:
        raise RequestError(f"The recorded request is not one that this Tollbridge knows: {error}.") from None


class _Gateway:
    """Answers with the attempts of a recording, in their order. `at` is when what it last said had come.

    What differs in the requests is added to `compared`, if there is such a list.
    """

    def __init__(self, attempts: list[Attempt], compared: list[list[Difference]] | None = None) -> None:
        self._attempts = list(attempts)
        self._compared = compared
        self.base_url = base_url_of(attempts[0].sent) if attempts else ""
        self.at = 0.0
        self._failure: BridgeError = Disconnected("The recording ends here.")

    async def batches(
        self,
        request: ChatRequest,
        *,
        api_key: str | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[list[Event]]:
        while self._attempts:
            try:
                attempt = self._attempts.pop(0)
                if self._compared is not None and not attempt.sent.left_out:
                    self._compared.append(diff_request(attempt.sent, request))
                for batch in self._events(attempt):
                    yield batch
                return
            except BridgeError as error:
                # What may pass the client tries again by itself; all else is for the bridge.
                self._failure = error
                if not error.transient or not self._attempts:
                    raise
        raise self._failure  # asked once more than then

    def _events(self, attempt: Attempt) -> Iterator[list[Event]]:
        if attempt.answered is None:
            raise Disconnected("Nothing came back.")
        decoder = decoder_for(attempt.sent.protocol, attempt.answered.status, attempt.answered.headers)
        for line in attempt.received:
            self.at = line.at
            yield from _or_raise(decoder.feed(line.data))
            if decoder.over:
                return
        yield from _or_raise(decoder.close())


def _or_raise(events: list[Event]) -> Iterator[list[Event]]:
    batch, failure = split_failure(events)
    if batch:
        yield batch
    if failure is not None:
        raise failure


async def with_parts_again(lines: Sequence[Line]) -> list[Line]:
    """The lines with the parts that their bytes make now, where their content was blotted out."""
    begun = lines[0]
    assert isinstance(begun, Begun)  # noqa: S101 - every tape begins so
    reports = (await _replay_attempts(begun, attempts_of(lines))).reports if begun.request is not None else []
    kept = [line for line in lines if not isinstance(line, Parts)]
    made: list[Line] = [Parts(at, parts) for at, parts in reports]
    # Sorting keeps the order of lines of one time: bytes come before the parts they make.
    return [*sorted([*kept[:-1], *made], key=lambda line: line.at), kept[-1]]


def diff_parts(then: Sequence[Part], now: Sequence[Part]) -> list[tuple[int, str | None, str | None]]:
    """Where two runs differ: the place, the part then, and the part now, as JSON. Every byte counts."""
    found: list[tuple[int, str | None, str | None]] = []
    for place in range(max(len(then), len(now))):
        before = write_json(then[place]) if place < len(then) else None
        after = write_json(now[place]) if place < len(now) else None
        if before != after:
            found.append((place, before, after))
    return found
