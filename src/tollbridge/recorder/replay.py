"""Replay recordings: run the recorded responses, and compare the requests, with the current version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, TypeVar

import msgspec

from tollbridge.answer import Answer
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.observer import Observer, Observers
from tollbridge.compat.memory import CompatMemory
from tollbridge.protocols import DEFAULT_BACKEND, find_by_stream, find_protocol
from tollbridge.protocols.detect import decoder_for
from tollbridge.recorder.recording import AnyLine, Attempt, PartsLine, Recording, RecordingStart, RequestLine
from tollbridge.recorder.redaction import hide_secrets
from tollbridge.request_context import RequestContext
from tollbridge.turn import Turn
from tollbridge.types.errors import BridgeError, Disconnected, RequestError
from tollbridge.types.events import Event, split_failure
from tollbridge.types.messages import ChatRequest, Part
from tollbridge.types.models import Capabilities
from tollbridge.types.quirks import LearnedQuirks
from tollbridge.types.text import read_json, write_json

_Value = TypeVar("_Value")

# A difference between a recorded and a current request: the path in the body, and both values as JSON.
Difference = tuple[str, str | None, str | None]


class Replay:
    """The result of a replay.

    Attributes:
        reports: The lists of parts as they were reported, each with its time in the recording.
        requests: The differences of each request that can be compared.
        answer: The answer of the turn, with its error if it failed.
    """

    def __init__(self) -> None:
        self.reports: list[tuple[float, tuple[Part, ...]]] = []
        self.requests: list[list[Difference]] = []
        self.answer = Answer()

    @property
    def parts(self) -> list[Part]:
        return [part for _, parts in self.reports for part in parts]


async def replay_recording(recording: Recording) -> Replay:
    """Run a complete turn, with the recording in place of the gateway.

    Raises:
        RequestError: If the recording has no request, or a request that cannot be read.
    """
    start, attempts, replay = recording.start, recording.attempts, Replay()
    if start.request is None:
        raise RequestError("The recording cannot be replayed: its request was too large to be recorded.")
    request = _convert(start.request, ChatRequest)
    # The form of a request depends on what was known about the server. Requests cannot be compared if that
    # was not recorded, or if their content was removed.
    comparable = start.learned is not None and not start.redacted
    for attempt in attempts if comparable else ():
        if not attempt.request.omitted_bytes:
            _decode_body(attempt.request)  # raises here, so that it is not taken for an error of the turn
    if comparable and attempts:
        request = _add_recorded_limit(request, attempts[0].request)
    gateway = _RecordedGateway(attempts, replay.requests if comparable else None)
    context = RequestContext(
        client=gateway,
        model=request.model,
        compat=CompatMemory(),
        learned=None if start.learned is None else _convert(start.learned, LearnedQuirks),
        capabilities=None if start.capabilities is None else _convert(start.capabilities, Capabilities),
    )
    turn = Turn(request, context)
    with suppress(BridgeError):  # it is in the answer
        async with turn:
            async for parts in turn.parts():
                replay.reports.append((gateway.time, tuple(parts)))
    replay.answer = turn.result
    return replay


# The output limit in the bodies of all protocols.
_LIMIT_FIELDS = ("max_output_tokens", "max_completion_tokens", "max_tokens", "maxOutputTokens")


def _add_recorded_limit(request: ChatRequest, recorded: RequestLine) -> ChatRequest:
    """Add the output limit that the turn chose by the length of the prompt, which a replay does not count."""
    if request.max_output_tokens is not None or recorded.omitted_bytes:
        return request
    body = _decode_body(recorded)
    limits = (body.get(name) for name in _LIMIT_FIELDS if name not in (request.extra or {}))
    limit = next((value for value in limits if isinstance(value, int)), None)
    return msgspec.structs.replace(request, max_output_tokens=limit)


def _convert(value: object, value_type: type[_Value]) -> _Value:
    try:
        return msgspec.convert(value, value_type)
    except msgspec.ValidationError as error:
        raise RequestError(f"The recorded request is not valid in this version: {error}.") from None


class _RecordedGateway:
    """A client that returns the recorded attempts in order.

    Args:
        differences: A list to which the differences of each request are added; `None` for no comparison.

    Attributes:
        time: The recorded time of the last bytes that were returned.
    """

    def __init__(self, attempts: list[Attempt], differences: list[list[Difference]] | None) -> None:
        self._attempts = list(attempts)
        self._differences = differences
        client = _client_for(attempts[0].request) if attempts else None
        self.base_url = client.base_url if client else ""
        self.protocol = client.protocol if client else find_protocol(DEFAULT_BACKEND)
        self.time = 0.0
        self._failure: BridgeError = Disconnected("The recording ends here.")

    async def batches(
        self,
        request: ChatRequest,
        *,
        api_key: str | None = None,  # noqa: ARG002
        observers: Sequence[Observer] | Observers = (),  # noqa: ARG002
    ) -> AsyncGenerator[list[Event]]:
        while self._attempts:
            try:
                attempt = self._attempts.pop(0)
                if self._differences is not None and not attempt.request.omitted_bytes:
                    self._differences.append(diff_request(attempt.request, request))
                for batch in self._decode(attempt):
                    yield batch
                return
            except BridgeError as error:
                # A client retries transient errors itself; other errors are handled by the turn.
                self._failure = error
                if not error.transient or not self._attempts:
                    raise
        raise self._failure  # there are more requests than in the recording

    def _decode(self, attempt: Attempt) -> Iterator[list[Event]]:
        if attempt.response is None:
            raise Disconnected("The recording has no response.")
        decoder = decoder_for(attempt.request.protocol, attempt.response.status, attempt.response.headers)
        for line in attempt.data:
            self.time = line.at
            yield from _raise_failure(decoder.feed(line.data))
            if decoder.is_finished:
                return
        yield from _raise_failure(decoder.close())


def _raise_failure(events: list[Event]) -> Iterator[list[Event]]:
    batch, failure = split_failure(events)
    if batch:
        yield batch
    if failure is not None:
        raise failure


async def replace_parts(lines: Sequence[AnyLine]) -> list[AnyLine]:
    """Replace the parts in redacted lines by those that the redacted responses produce."""
    start = lines[0]
    assert isinstance(start, RecordingStart)  # noqa: S101 - the first line of every recording
    replay = Replay()
    if start.request is not None:
        replay = await replay_recording(Recording(start, tuple(lines)))
    *other_lines, end = [line for line in lines if not isinstance(line, PartsLine)]
    parts: list[AnyLine] = [PartsLine(at, parts) for at, parts in replay.reports]
    # The sort is stable: for lines with the same time, bytes come before the parts that they produce.
    return [*sorted([*other_lines, *parts], key=lambda line: line.at), end]


def diff_parts(recorded: Sequence[Part], current: Sequence[Part]) -> list[tuple[int, str | None, str | None]]:
    """Return the differences of two lists of parts: the index, and both parts as JSON."""
    pairs = zip_longest(map(write_json, recorded), map(write_json, current))
    return [(index, before, after) for index, (before, after) in enumerate(pairs) if before != after]


_MISSING = object()


def diff_request(recorded: RequestLine, request: ChatRequest) -> list[Difference]:
    """Compare a recorded request with the one that the current version sends. Secrets are masked in both."""
    client = _client_for(recorded)
    body = hide_secrets(client.encode_request(request))
    before, after = _decode_body(recorded), read_json(body)
    for name in client.protocol.random_fields:
        before.pop(name, None)
        after.pop(name, None)
    return list(_diff_values("", before, after))


def _client_for(recorded: RequestLine) -> GatewayClient:
    protocol = find_by_stream(recorded.protocol)
    if protocol is None:
        raise RequestError(f'The recording has the unknown protocol "{recorded.protocol}".')
    base_url = recorded.url.removesuffix(protocol.path)
    return GatewayClient(protocol.at(base_url), base_url)


def _decode_body(recorded: RequestLine) -> dict[str, Any]:
    try:
        body = read_json(recorded.body)
    except ValueError as error:
        raise RequestError(f"The recorded request body to {recorded.url} is not JSON: {error}.") from None
    if not isinstance(body, dict):
        raise RequestError(f"The recorded request body to {recorded.url} is not a JSON object.")
    return body


def _diff_values(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            item_path = f"{path}.{name}" if path else str(name)
            yield from _diff_values(item_path, before.get(name, _MISSING), after.get(name, _MISSING))
    elif isinstance(before, list) and isinstance(after, list):
        for index, items in enumerate(zip_longest(before, after, fillvalue=_MISSING)):
            yield from _diff_values(f"{path}[{index}]", *items)
    elif before is _MISSING or after is _MISSING or write_json(before) != write_json(after):
        yield path, _to_json(before), _to_json(after)


def _to_json(value: Any) -> str | None:
    return None if value is _MISSING else write_json(value)
