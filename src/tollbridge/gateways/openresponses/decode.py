"""OpenResponses bytes to events: one decoder a turn, one list of events a network read."""

from __future__ import annotations

from operator import attrgetter
from typing import Literal

import msgspec

from tollbridge.core.errors import StreamError
from tollbridge.core.events import Data, Event, Failed, Finished
from tollbridge.core.json import read_json
from tollbridge.gateways.openresponses import wire
from tollbridge.gateways.openresponses.telling import Words
from tollbridge.gateways.openresponses.turn import Turn
from tollbridge.gateways.openresponses.wire import Fields
from tollbridge.gateways.sse import FRAME_LIMIT, Frame, SseDecoder, too_large
from tollbridge.gateways.unknown import Unknown

# What deltas of one run have in common, each looked at on its own: that is cheaper than tuples.
_PLACE = (type, attrgetter("output_index"), attrgetter("item_id"), attrgetter("part"))
_piece = attrgetter("delta")
_KINDS: dict[type[wire.Delta], Words | Literal["arguments"]] = {
    wire.TextDelta: "text",
    wire.ReasoningDelta: "reasoning",
    wire.ReasoningTextDelta: "reasoning",
    wire.SummaryDelta: "summary",
    wire.ArgumentsDelta: "arguments",
}
_BOM = b"\xef\xbb\xbf"


class StreamDecoder:
    """Takes the bytes of one answer, streamed or as one JSON body, however they are cut. Never raises."""

    def __init__(self, limit: int = FRAME_LIMIT, *, siblings: bool = False) -> None:
        """With `siblings`, a body that answers another question (models, token count) is no error."""
        self._limit = limit
        self._siblings = siblings
        self._turn = Turn()
        self._sse = SseDecoder(limit)
        self._start: bytes | None = b""  # until the first byte that is no white space tells what this is
        self._body: list[bytes] = []  # of an answer that is not streamed
        self._streamed = True
        self._size = 0
        self._understood = 0  # frames that were
        self._garbled = 0  # frames that were not JSON

    @property
    def over(self) -> bool:
        """Whether the answer has ended. The gateway may still hold the connection; nothing more will come."""
        return self._turn.over

    @property
    def unknown(self) -> Unknown:
        """Events that were not understood, by name."""
        return self._turn.unknown

    def feed(self, chunk: bytes) -> list[Event]:
        if self._turn.over:
            return []
        if self._start is not None:
            chunk = self._sniff(chunk)
        if not self._streamed:
            return self._collect(chunk)
        block = self._sse.complete(chunk)
        found = self._read_run(block)
        if found is None:
            found = self._read(self._sse.cut(block))
        return self._checked(found)

    def take(self, event: object) -> list[Event]:
        """An event that somebody else has already parsed."""
        return self._turn.take(Fields(event))

    def close(self) -> list[Event]:
        """The bytes have ended."""
        if self._turn.over:
            return []
        if not self._streamed:
            return self._answer(b"".join(self._body))
        garbled = self._garbled
        found = self._checked(self._read(self._sse.close()))
        if self._turn.over:
            return found
        self._garbled = garbled  # a last frame that breaks off was cut, and is not to blame
        if not self._understood and (self._sse.strange or self._garbled):
            return [*found, *self._fail("The gateway's answer is not an event stream.")]
        if self._garbled:
            return [
                *found,
                *self._turn.cut(StreamError("The gateway's stream broke off in bytes that make no sense.")),
            ]
        return found + self._turn.close()

    def _sniff(self, chunk: bytes) -> bytes:
        """Content types lie: a body that opens with a brace is JSON, whatever it was called."""
        start = (self._start or b"") + chunk
        seen = start.lstrip(b" \t\r\n")
        if _BOM.startswith(seen):
            # White space means nothing in either, and may go on for ever: the last of it stands for all.
            self._start = seen or start[-1:]
            return b""
        self._start = None
        self._streamed = not seen.removeprefix(_BOM).startswith((b"{", b"["))
        return start

    def _collect(self, chunk: bytes) -> list[Event]:
        self._body.append(chunk)
        self._size += len(chunk)
        if self._size <= self._limit:
            return []
        self._turn.over = True
        return [Failed(too_large(self._limit))]

    def _answer(self, body: bytes) -> list[Event]:
        try:
            value = read_json(body.strip().removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            return self._fail("The gateway's answer is JSON that breaks off or makes no sense.")
        sibling = _sibling(Fields(value)) if self._siblings else []
        self._turn.over = bool(sibling)
        return sibling or self._turn.answer(Fields(value))

    def _read_run(self, block: bytes) -> list[Event] | None:
        """The event of a block that is one run of deltas of one item: nearly every block of a long answer."""
        payloads = self._sse.payloads(block) if block else None
        if not payloads:
            return None
        try:
            deltas = list(map(wire.read_delta, payloads))
        except (msgspec.MsgspecError, ValueError):
            return None
        if any(len(set(map(sign, deltas))) != 1 for sign in _PLACE):
            return None
        return self._tell(deltas)

    def _read(self, frames: list[Frame]) -> list[Event]:
        """Frames of any kind. Deltas in a row that belong together become one event."""
        found: list[Event] = []
        run: list[wire.Delta] = []
        for _, data in frames:
            try:
                delta = wire.read_delta(data)
            except (msgspec.MsgspecError, ValueError):
                found += self._tell(run)
                found += self._other(data)
                if self._turn.over:
                    break
                continue
            if run and any(sign(delta) != sign(run[0]) for sign in _PLACE):
                found += self._tell(run)
            run.append(delta)
        return found + self._tell(run)

    def _tell(self, run: list[wire.Delta]) -> list[Event]:
        """The one event of a run, which is used up."""
        if not run:
            return []
        self._understood += len(run)
        first, text = run[0], "".join(map(_piece, run))
        run.clear()
        return self._turn.say(_KINDS[type(first)], first.output_index, first.item_id, first.part, text)

    def _other(self, data: bytes) -> list[Event]:
        """Everything but a well-formed delta."""
        text = data.strip()
        if not text:
            return []
        if text == b"[DONE]":
            self._understood += 1
            return self._turn.close()
        try:
            value = read_json(text)
        except ValueError:
            self._garbled += 1
            return []
        self._understood += 1
        return self._turn.take(Fields(value))

    def _checked(self, found: list[Event]) -> list[Event]:
        if self._sse.error is not None and not self._turn.over:
            found += self._turn.cut(self._sse.error)
        return found

    def _fail(self, sentence: str) -> list[Event]:
        self._turn.over = True
        return [Failed(StreamError(sentence))]


def _sibling(body: Fields) -> list[Event]:
    """The answer to “which models are there?” or to “how many tokens would that be?”."""
    match body.text("object"):
        case "list":
            return [Data("models", [model.text("id") for model in body.list("data")]), Finished("stop")]
        case "response.input_tokens":
            return [Finished("stop", usage=wire.read_usage(body))]
        case _:
            return []
