"""Encode answers for callers: the base of the encoders of the protocols."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable

from tollbridge.protocols.caller_request import CallerRequest, Json
from tollbridge.types.errors import BridgeError, ServerFailed
from tollbridge.types.events import Event, Finished


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


class AnswerEncoder(ABC):
    """Encodes one answer: its events become the events of a stream, and the body for a caller without stream.

        encoder = caller.encoder(request)
        wire_events = encoder.start()
        wire_events += encoder.encode(batch)      # for each batch of the answer
        wire_events += encoder.finish(error)      # `error` is `None` if the answer is complete
        body = encoder.body()                     # for a caller that does not stream

    Mark the events with a `ReasoningPacker` first, so that reasoning returns only to the model it came from.
    `input_tokens` is an estimate, for protocols that report them at the start. The end of the stream has the
    exact usage.
    """

    def __init__(self, request: CallerRequest, *, input_tokens: int = 0) -> None:
        self._request = request
        self._input_tokens = input_tokens
        self._finished: Finished | None = None

    @abstractmethod
    def start(self) -> list[Json]:
        """Return the first events of the stream."""

    def encode(self, batch: Iterable[Event]) -> list[Json]:
        """Return the events of the stream for a batch of the answer."""
        wire_events: list[Json] = []
        for event in batch:
            if isinstance(event, Finished):
                self._finished = event  # a repaired call can still follow
            wire_events += self._encode_event(event)
        return wire_events

    def finish(self, error: BridgeError | None = None) -> list[Json]:
        """Return the last events of the stream. An error is part of it: the status was sent before."""
        if error is None and self._finished is not None:
            return self._complete(self._finished)
        return self._fail(error or _make_end_error())

    def body(self) -> Json:
        """Return the body of the response to a caller that does not stream, after `finish`.

        Raises:
            ServerFailed: The answer has no end.
        """
        if self._finished is None:
            raise _make_end_error()
        return self._make_body(self._finished)

    @abstractmethod
    def _encode_event(self, event: Event) -> list[Json]: ...

    @abstractmethod
    def _complete(self, finished: Finished) -> list[Json]: ...

    @abstractmethod
    def _fail(self, error: BridgeError) -> list[Json]: ...

    @abstractmethod
    def _make_body(self, finished: Finished) -> Json: ...


def _make_end_error() -> ServerFailed:
    return ServerFailed("The answer ended without a terminal event.", code="server_error")


class AnswerText:
    """The text of an answer, divided into blocks. Its end can be replaced, across blocks."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, str]] = []  # each with its block
        self.length = 0

    def __bool__(self) -> bool:
        return self.length > 0

    def add(self, text: str, *, replaces: int = 0, block: int | None = None) -> None:
        """Remove the last `replaces` characters; append a text to a block, by default to the last one."""
        if block is None:
            block = self._pieces[-1][0] if self._pieces else 0
        while replaces > 0 and self._pieces:
            last_block, last = self._pieces.pop()
            kept = last[: max(0, len(last) - replaces)]
            if kept:
                self._pieces.append((last_block, kept))
            self.length -= len(last) - len(kept)
            replaces -= len(last)
        if text:
            self._pieces.append((block, text))
            self.length += len(text)

    def join(self) -> str:
        """Return the text of all blocks."""
        return "".join(text for _, text in self._pieces)

    def blocks(self) -> dict[int, str]:
        """Return the text of each block that has some."""
        blocks: dict[int, list[str]] = {}
        for block, text in self._pieces:
            blocks.setdefault(block, []).append(text)
        return {block: "".join(texts) for block, texts in blocks.items()}
