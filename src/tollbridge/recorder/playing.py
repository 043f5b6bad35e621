"""Recordings played again: the bytes that came then, through the code of today."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TypeVar

import msgspec

from tollbridge.bridge import Bridge, Turn
from tollbridge.core.errors import BridgeError, Disconnected, RequestError
from tollbridge.core.events import Event, until_failure
from tollbridge.core.json import write_json
from tollbridge.core.messages import ChatRequest, Part
from tollbridge.core.models import Capabilities
from tollbridge.gateways.dialects import decoder_for
from tollbridge.healing import Learned, RememberedLessons
from tollbridge.recorder.lines import Begun, Line, Parts
from tollbridge.recorder.reading import Attempt, Recording, attempts_of
from tollbridge.recorder.wording import Difference, base_url_of, body_of, differences

_Shape = TypeVar("_Shape")


class Played:
    """What playing a recording came to. `parts` are in the lists in which they came, each with its time."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, tuple[Part, ...]]] = []
        # For each request that can be compared, where the one of today differs from what was sent.
        self.requests: list[list[Difference]] = []
        self.turn: Turn | None = None
        self.error: BridgeError | None = None

    @property
    def parts(self) -> list[Part]:
        return [part for _, parts in self.reports for part in parts]


async def play(recording: Recording) -> Played:
    """The whole way that a turn takes, with the recording in the gateway's place."""
    return await _play(recording.begun, recording.attempts)


async def _play(begun: Begun, attempts: list[Attempt]) -> Played:
    played = Played()
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
    lessons = RememberedLessons()
    if begun.learned is not None:
        lessons.learn(gateway.base_url, request.model, _read(begun.learned, Learned))
    abilities = None if begun.abilities is None else _read(begun.abilities, Capabilities)

    def report(parts: list[Part]) -> None:
        played.reports.append((gateway.at, tuple(parts)))

    try:
        bridge = Bridge(gateway, lessons=lessons)
        played.turn = await bridge.answer(request, report, abilities=abilities)
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
                    self._compared.append(differences(attempt.sent, request))
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
    batch, failure = until_failure(events)
    if batch:
        yield batch
    if failure is not None:
        raise failure


async def with_parts_again(lines: Sequence[Line]) -> list[Line]:
    """The lines with the parts that their bytes make now, where their content was blotted out."""
    begun = lines[0]
    assert isinstance(begun, Begun)  # noqa: S101 - every tape begins so
    reports = (await _play(begun, attempts_of(lines))).reports if begun.request is not None else []
    kept = [line for line in lines if not isinstance(line, Parts)]
    made: list[Line] = [Parts(at, parts) for at, parts in reports]
    # Sorting keeps the order of lines of one time: bytes come before the parts they make.
    return [*sorted([*kept[:-1], *made], key=lambda line: line.at), kept[-1]]


def difference(then: Sequence[Part], now: Sequence[Part]) -> list[tuple[int, str | None, str | None]]:
    """Where two runs differ: the place, the part then, and the part now, as JSON. Every byte counts."""
    found: list[tuple[int, str | None, str | None]] = []
    for place in range(max(len(then), len(now))):
        before = write_json(then[place]) if place < len(then) else None
        after = write_json(now[place]) if place < len(now) else None
        if before != after:
            found.append((place, before, after))
    return found
