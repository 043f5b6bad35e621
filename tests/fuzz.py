"""Feed all decoders of outside data with mutated recordings: `make fuzz`, or `python -m tests.fuzz`.

An input is a piece of a recording in which bytes, JSON values, lines or their order were changed. It fails if
a decoder raises, if a guard has to hide an exception, or if it takes too long. An input depends only on the
seed and its number, so that a failure can be repeated: `python -m tests.fuzz --seed S --first N --count 1`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from tests.recorded_streams import RECORDINGS, events_of
from tests.turns import AnswerParts
from tollbridge.frontends.stdio.parameters import NotUtf8, read_parameters
from tollbridge.frontends.stdio.wire import ChatParams, CountParams
from tollbridge.frontends.vscode.answers import encode_parts
from tollbridge.frontends.vscode.errors import encode_error
from tollbridge.frontends.vscode.models import encode_model
from tollbridge.frontends.vscode.requests import decode_chat, decode_message
from tollbridge.history.answer import apply_corrections, join_parts, parts_from_events
from tollbridge.history.normalize import normalize_request
from tollbridge.protocols.ai_sdk.requests import encode_call
from tollbridge.protocols.anthropic_messages.caller import CODEC as MESSAGES_CALLER
from tollbridge.protocols.anthropic_messages.requests import encode_request as encode_message
from tollbridge.protocols.billing import read_credits, read_generation
from tollbridge.protocols.chat_completions.caller import CODEC as COMPLETIONS_CALLER
from tollbridge.protocols.chat_completions.requests import encode_request as encode_completion
from tollbridge.protocols.detect import decoder_for
from tollbridge.protocols.errors import read_error_response
from tollbridge.protocols.jsonrpc import Call, Reader
from tollbridge.protocols.model_list import read_endpoints, read_models
from tollbridge.protocols.openresponses.caller import CODEC as RESPONSES_CALLER
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.protocols.sse import SseDecoder
from tollbridge.recorder.recording import read_line
from tollbridge.types.errors import BridgeError, StreamError, most_severe
from tollbridge.types.events import Event, Failed
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Origin,
    OutputFormat,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
)
from tollbridge.types.text import read_json, write_valid_json

# Seconds of CPU time that one input may take, and seconds after which a hanging program is ended.
SLOW, HANGING = 2.0, 60
# The most bytes of a recording in one input.
PIECE = 6_000
ORIGIN = Origin("m", "g")

Random = random.Random
Run = Callable[[bytes, Random], None]


class Target(NamedTuple):
    """A decoder: the inputs that are mutated, and a function that decodes one."""

    corpus: list[bytes]
    run: Run


class Problem(Exception):
    """Raised for an input that a decoder does not handle."""


# --- Decoding ---


def _split(data: bytes, rng: Random) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 1, 3, 8))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _decode_stream(protocol: str, *, status: int | None = None) -> Run:
    def run(data: bytes, rng: Random) -> None:
        if rng.random() < 0.1:
            whole = events_of(decoder_for(protocol, status), [data])
            pieces = events_of(decoder_for(protocol, status), _split(data, rng))
            if repr(whole) != repr(pieces):  # not `!=`: two NaN are never equal
                raise Problem("the events depend on where the bytes are split")
            return
        decoder = decoder_for(protocol, status)
        events: list[Event] = []
        answer = AnswerParts(origin=ORIGIN, reasoning=rng.random() < 0.9)
        parts = []
        for chunk in _split(data, rng):
            batch = decoder.feed(chunk)
            events += batch
            parts += answer.take(batch)
            if decoder.is_finished:
                break
        else:
            batch = decoder.close()
            events += batch
            parts += answer.take(batch)
        if not events:
            raise Problem("no events: an answer must end with a Finished or a Failed")
        errors = [event.error for event in events if isinstance(event, Failed)]
        rest, error = answer.close(most_severe(errors))
        msgspec.json.encode(encode_parts([*parts, *rest], "m"), enc_hook=str) if _is_unicode(data) else None
        if error is not None:
            encode_error(error)
        join_parts(parts_from_events(apply_corrections(events)))

    return run


def _is_unicode(data: bytes) -> bool:
    """Return whether the output can be encoded as UTF-8: lone surrogates are passed on to the editor."""
    return b"\\ud" not in data.lower()


def _read_error(data: bytes, rng: Random) -> None:
    status = rng.choice((400, 401, 404, 422, 429, 500, 503, 529, 599))
    value = data[:40].decode("latin-1").replace("\n", " ")
    encode_error(read_error_response(status, {"Retry-After": value, "x-request-id": value}, data))


def _read_models(data: bytes, rng: Random) -> None:
    try:
        for model in read_models(data):
            msgspec.json.encode(encode_model(model)) if _is_unicode(data) else None
        read_endpoints(data)
    except StreamError:
        pass


def _read_bill(data: bytes, rng: Random) -> None:
    for read in (read_generation, read_credits):
        with suppress(StreamError):
            read(data)


def _read_sse(data: bytes, rng: Random) -> None:
    whole, pieces = SseDecoder(), SseDecoder()
    frames = whole.feed(data) + whole.close()
    if frames != [frame for chunk in _split(data, rng) for frame in pieces.feed(chunk)] + pieces.close():
        raise Problem("the frames depend on where the bytes are split")


def _read_frames(data: bytes, rng: Random) -> None:
    reader = Reader()
    if rng.random() < 0.7:  # a valid header, so that the body is decoded
        body = data.partition(b"\r\n\r\n")[2]
        data = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    for message in (message for chunk in _split(data, rng) for message in reader.feed(chunk)):
        if isinstance(message, Call):
            _read_call(message)


def _read_call(call: Call) -> None:
    try:
        chat: Any = read_parameters(call.params, ChatParams if call.method != "count" else CountParams)
        if isinstance(chat, CountParams):
            for item in chat.items:
                item if isinstance(item, str) else decode_message(item)
            return
        request = normalize_request(decode_chat(chat).request, origin=ORIGIN).request
        write_valid_json(encode_request(request))
        write_valid_json(encode_call(request))
    except (msgspec.MsgspecError, NotUtf8, BridgeError):
        pass  # the server sends an error response


def _read_recording(data: bytes, rng: Random) -> None:
    for line in data.split(b"\n"):
        with suppress(ValueError):
            read_line(line)


def _read_request(decode: Callable[[Any], Any]) -> Run:
    """Return a function that decodes a caller's request of the local server, and encodes it for gateways."""

    def run(data: bytes, rng: Random) -> None:
        try:
            body = read_json(data)
            if not isinstance(body, dict):
                return  # the server sends an error response
            request = normalize_request(decode(body).request, origin=ORIGIN).request
            for encode in (encode_request, encode_completion, encode_message, encode_call):
                write_valid_json(encode(request))
        except (ValueError, BridgeError):
            pass  # the server sends an error response

    return run


# --- What is mutated ---

_CALLER_REQUEST = ChatRequest(
    model="m",
    messages=(
        Message(Role.SYSTEM, "Be brief."),
        Message(Role.USER, ("Look.", DataPart(b"\x89PNG\r\n\x1a\n", "image/png"))),
        Message(
            Role.ASSISTANT,
            (
                ThinkingPart("Hm.", "r", add_origin(ORIGIN, {"signature": "s"})),
                TextPart("Yes."),
                ToolCallPart("c1", "read", {"path": "/x", "n": [1, 2.5, None]}),
            ),
        ),
        Message(Role.USER, (ToolResultPart("c1", "ok"), TextPart("Go on."))),
    ),
    tools=(Tool("read", "d", {"type": "object", "properties": {"p": {}}}),),
    tool_choice="auto",
    max_output_tokens=99,
    temperature=0.5,
    output_format=OutputFormat("o", {"type": "object"}),
)


def _caller_body(encode: Callable[[ChatRequest], Any]) -> list[bytes]:
    return [write_valid_json(encode(_CALLER_REQUEST)).encode()]


_CHAT: dict[str, Any] = {
    "account": {"baseUrl": "http://127.0.0.1/v1"},
    "model": "m",
    "progressToken": 1,
    "messages": [
        {"role": 3, "content": [{"type": "text", "value": "Be brief."}]},
        {
            "role": 1,
            "name": "u",
            "content": [{"type": "data", "mimeType": "image/png", "data": "iVBORw0KGgo="}],
        },
        {
            "role": 2,
            "content": [
                {
                    "type": "thinking",
                    "value": ["a", "b"],
                    "id": "r",
                    "metadata": {"_tollbridge": {"model": "m"}},
                },
                {
                    "type": "toolCall",
                    "callId": "c1",
                    "name": "read",
                    "input": {"path": "/x", "n": [1, 2.5, None]},
                },
                {"type": "data", "mimeType": "stateful_marker", "data": "bVxleUp0YjJSbGJDSTZJbTBpZlE="},
            ],
        },
        {
            "role": 1,
            "content": [
                {
                    "type": "toolResult",
                    "callId": "c1",
                    "content": [
                        {"type": "text", "value": "ok"},
                        {
                            "type": "promptTsx",
                            "value": {"node": {"type": 1, "children": [{"type": 2, "text": "x"}]}},
                        },
                        {"type": "future", "x": 1},
                    ],
                },
                {"type": "text", "value": "Go on."},
            ],
        },
    ],
    "tools": [
        {"name": "read", "description": "d", "inputSchema": {"type": "object", "properties": {"p": {}}}}
    ],
    "toolMode": 1,
    "modelOptions": {"temperature": 0.5, "custom": {"a": 1}},
}
_COUNT = {"model": "m", "items": ["text", _CHAT["messages"][2]]}
_LINE = {
    "line": "parts",
    "at": 0.1,
    "parts": [{"type": "tool_call", "call_id": "c", "name": "f", "input": {"a": 1}}],
}


def _call(method: str, params: object) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def make_targets() -> dict[str, Target]:
    """Return all decoders, by name."""

    def read(folder: str, pattern: str) -> list[bytes]:
        return [
            path.read_bytes() for path in sorted((RECORDINGS / folder).rglob(pattern)) if path.stat().st_size
        ]

    streams, bodies = read("openresponses", "*.sse"), read("openresponses", "*.json")
    ui, full, data = read("aisdk", "*.ui.sse"), read("aisdk", "*.full.jsonl"), read("aisdk", "*.ui.ds.txt")
    completions, completion_bodies = (read("chat_completions", name) for name in ("*.sse", "*.json"))
    messages, message_bodies = (read("anthropic_messages", name) for name in ("*.sse", "*.json"))
    return {
        "chat completions stream": Target(completions, _decode_stream("chat-completions")),
        "chat completions body": Target(completion_bodies, _decode_stream("chat-completions")),
        "chat completions request": Target(
            _caller_body(encode_completion), _read_request(COMPLETIONS_CALLER.decode)
        ),
        "messages stream": Target(messages, _decode_stream("anthropic-messages")),
        "messages body": Target(message_bodies, _decode_stream("anthropic-messages")),
        "messages request": Target(_caller_body(encode_message), _read_request(MESSAGES_CALLER.decode)),
        "responses request": Target(_caller_body(encode_request), _read_request(RESPONSES_CALLER.decode)),
        "openresponses stream": Target(streams, _decode_stream("openresponses")),
        "openresponses body": Target(bodies, _decode_stream("openresponses")),
        "ai-sdk-ui": Target(ui, _decode_stream("ai-sdk-ui")),
        "ai-sdk-model": Target(ui, _decode_stream("ai-sdk-model")),
        "ai-sdk-full": Target(full, _decode_stream("ai-sdk-full")),
        "ai-sdk-data": Target(data, _decode_stream("ai-sdk-data")),
        "auto": Target([*streams, *bodies, *ui, *full, *data], _decode_stream("auto")),
        "error response": Target(bodies, _decode_stream("auto", status=400)),
        "error body": Target(bodies, _read_error),
        "bill": Target(read("usage", "*.json"), _read_bill),
        "model list": Target(read("models", "*.json"), _read_models),
        "sse": Target([*streams, *ui], _read_sse),
        "editor messages": Target([_call("chat", _CHAT), _call("count", _COUNT)], _read_frames),
        "recording": Target([json.dumps(_LINE).encode()], _read_recording),
    }


# --- Mutations ---

_DEEP = "deep value"  # replaced in the JSON text, because json cannot write such values
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -0.5, 1e308, 1e-300, float("inf"), float("nan")),
    *("", "x", "0", "\ud83d", "\x00", "é" * 50, "a" * 3_000, "null", "{}", "[DONE]", '{"a":', "data:,x"),
    *(
        [],
        {},
        [[]],
        [None],
        {"": ""},
        {"type": "error"},
        {"error": {"message": 1}},
        _DEEP,
        [_DEEP],
        {"x": _DEEP},
    ),
)
_BYTES = (
    *(
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\r",
        b"\n",
        b"\r\n\r\n",
        b"\xef\xbb\xbf",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
    ),
    *(
        b"data:",
        b"event: x\n",
        b": c\n",
        b"\n\ndata: [DONE]\n\n",
        b"{" * 3_000,
        b"[" * 1_100,
        b"\\ud83d",
        b"1e999",
    ),
)


def mutate(corpus: list[bytes], rng: Random) -> bytes:
    """Return a piece of a random recording with some changes."""
    data = rng.choice(corpus)
    if len(data) > PIECE:
        start = rng.choice((0, rng.randrange(len(data)), max(0, len(data) - PIECE)))
        start = data.rfind(b"\n\n", 0, start) + 2 if start else 0
        data = data[start : start + PIECE]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        data = rng.choice(_MUTATIONS)(data, rng)
    return data


def _change_bytes(data: bytes, rng: Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    end = start + rng.choice((0, 0, 1, 1, 4, 40))
    new = rng.choice(_BYTES) if rng.random() < 0.7 else rng.randbytes(rng.randrange(4))
    return data[:start] + new + data[end:]


def _truncate(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _change_lines(data: bytes, rng: Random) -> bytes:
    """Repeat, remove, move or swap lines or frames."""
    separator = rng.choice((b"\n", b"\n\n"))
    lines = data.split(separator)
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            lines.insert(second, lines[first])
        case 1:
            del lines[first]
        case 2:
            lines.insert(second, lines.pop(first))
        case _:
            lines[first], lines[second] = lines[second], lines[first]
    return separator.join(lines)


def _change_value(data: bytes, rng: Random) -> bytes:
    """Change a value in the JSON of a line."""
    lines = data.split(b"\n")
    candidates = [at for at, line in enumerate(lines) if b"{" in line or b"[" in line]
    if not candidates:
        return _change_bytes(data, rng)
    at = rng.choice(candidates)
    start = min(place for place in (lines[at].find(b"{"), lines[at].find(b"[")) if place >= 0)
    try:
        value = json.loads(lines[at][start:])
        for _ in range(rng.choice((1, 1, 2, 4))):
            _replace_node(value, rng)
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    except (ValueError, RecursionError):
        return _change_bytes(data, rng)
    if _DEEP in text:
        depth, (opening, closing) = (
            rng.choice((150, 215, 300, 990, 3_000)),
            rng.choice((('{"a":', "}"), ("[", "]"))),
        )
        text = text.replace(f'"{_DEEP}"', f"{opening * depth}1{closing * depth}")
    lines[at] = lines[at][:start] + text.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _replace_node(value: Any, rng: Random) -> None:
    """Replace, remove, add or rename a random value below this one."""
    nodes: list[tuple[Any, Any]] = []
    level = [value]
    while level:
        node = level.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            nodes.append((node, key))
            if isinstance(node[key], dict | list):
                level.append(node[key])
    if not nodes:
        return
    node, key = rng.choice(nodes)
    match rng.randrange(6):
        case 0:
            del node[key]
        case 1 if isinstance(node, dict):
            node[rng.choice([*node, "type", "id", "x"])] = node.pop(key)
        case 2:
            other, name = rng.choice(nodes)
            node[key] = deepcopy(other[name])
        case 3 if isinstance(node, list):
            node.insert(key, deepcopy(rng.choice(_VALUES)))
        case _:
            node[key] = deepcopy(rng.choice(_VALUES))


_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_change_value, _change_value, _change_value, _change_value),
    *(_change_bytes, _change_lines, _change_lines, _truncate),
)


# --- The program ---


class _GuardLog(logging.Handler):
    """Collects what the guards of the decoders log: exceptions that a user does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def _watch_guards() -> Iterator[_GuardLog]:
    handler, logger = _GuardLog(), logging.getLogger("tollbridge.protocols.stream")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def fuzz(count: int, *, seed: int = 0, first: int = 0, progress: bool = False) -> Counter[str]:
    """Decode `count` inputs and return their number by decoder.

    Raises:
        Problem: A decoder failed. The message says how to repeat it.
    """
    targets = make_targets()
    names = list(targets)
    done: Counter[str] = Counter()
    slowest, shown = 0.0, 0.0
    with _watch_guards() as guards:
        for number in range(first, first + count):
            name = names[number % len(names)]
            rng = Random(f"{seed}:{number}")
            data = mutate(targets[name].corpus, rng)
            start = time.process_time()
            try:
                targets[name].run(data, rng)
                if guards.messages:
                    raise Problem(guards.messages[0])
                seconds = time.process_time() - start
                if seconds > SLOW:
                    raise Problem(f"took {seconds:.1f} s of CPU time")
            except Exception as error:
                raise Problem(
                    f"{name}: {error!r} (repeat: --seed {seed} --first {number} --count 1)"
                ) from error
            slowest = max(slowest, seconds)
            done[name] += 1
            if progress and time.monotonic() - shown > 1:
                shown = time.monotonic()
                faulthandler.dump_traceback_later(HANGING, exit=True)
                print(f"\r{number + 1 - first:,} of {count:,} inputs", end="", file=sys.stderr, flush=True)
    faulthandler.cancel_dump_traceback_later()
    if progress:
        print(
            f"\r{count:,} inputs, no exception; the slowest took {slowest:.3f} s of CPU time", file=sys.stderr
        )
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    options = parser.parse_args()
    started = time.monotonic()
    done = fuzz(options.count, seed=options.seed, first=options.first, progress=True)
    for name, number in done.items():
        print(f"{number:>9,}  {name}")
    print(f"{sum(done.values()):>9,}  inputs in {time.monotonic() - started:,.0f} s")


if __name__ == "__main__":
    main()
