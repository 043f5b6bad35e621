"""CPU time per streamed event of the decoders, interleaved in one process: Chat Completions, OpenResponses.

Each decoder reads 16,000 deltas of text, of reasoning or of arguments, with 1, 5 or 50 of them per read. The
baseline parses the same chunks with msgspec, typed as the decoder does, and nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.stream import WORDS, frames
from bench.targets import at_most
from tollbridge.protocols.chat_completions.stream import StreamDecoder as ChatCompletionsDecoder
from tollbridge.protocols.chat_completions.wire import read_text_chunk
from tollbridge.protocols.detect import Decoder
from tollbridge.protocols.openresponses.stream import StreamDecoder as OpenResponsesDecoder

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "7"))
COUNT = 16_000
EVENTS_PER_READ = (1, 5, 50)
# The CPU time of a delta of Chat Completions divided by that of OpenResponses, at most.
TARGET = 2.0
_HEAD = {"id": f"chatcmpl-{'a' * 29}", "object": "chat.completion.chunk", "created": 1_700_000_000}


def _chunk(delta: dict[str, Any]) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    body = {**_HEAD, "model": "bench", "system_fingerprint": "fp_bench", "choices": [choice]}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def _chunks(make_delta: Callable[[str], dict[str, Any]]) -> list[bytes]:
    words = (WORDS[n % len(WORDS)] for n in range(COUNT))
    return [_chunk({"role": "assistant", "content": ""}), *(_chunk(make_delta(word)) for word in words)]


def _arguments(word: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"arguments": word}}]}


class Baseline:
    """Parses the data of each frame."""

    def feed(self, block: bytes) -> None:
        for line in block.split(b"\n\n")[:-1]:
            read_text_chunk(line[6:])


STREAMS: dict[str, tuple[Callable[[], Decoder | Baseline], list[bytes]]] = {
    "OpenResponses, text": (
        OpenResponsesDecoder,
        [frame for frame in frames() if b"output_text.delta" in frame],
    ),
    "Chat Completions, text": (ChatCompletionsDecoder, _chunks(lambda word: {"content": word})),
    "Chat Completions, reasoning": (
        ChatCompletionsDecoder,
        _chunks(lambda word: {"content": None, "reasoning_content": word}),
    ),
    "Chat Completions, arguments": (ChatCompletionsDecoder, _chunks(_arguments)),
    "msgspec decode only (baseline)": (Baseline, _chunks(lambda word: {"content": word})),
}


def measure(
    open_decoder: Callable[[], Decoder | Baseline], stream: list[bytes], events_per_read: int
) -> float:
    """Return the CPU time of one event in microseconds."""
    reads = [
        b"".join(stream[start : start + events_per_read]) for start in range(0, len(stream), events_per_read)
    ]
    decoder = open_decoder()
    started = time.thread_time()
    for read in reads:
        decoder.feed(read)
    return (time.thread_time() - started) / len(stream) * 1e6


def main() -> list[str]:
    """Run the benchmark and return the missed targets."""
    table = Table("µs of CPU per event", *(f"{count} per read" for count in EVENTS_PER_READ))
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(ROUNDS):
        for count in EVENTS_PER_READ:
            for name, (open_decoder, stream) in STREAMS.items():
                times.setdefault((name, count), []).append(measure(open_decoder, stream, count))
    medians = {key: statistics.median(values) for key, values in times.items()}
    missed: list[str] = []
    for name in STREAMS:
        table.add_row(name, *(f"{medians[name, count]:.2f}" for count in EVENTS_PER_READ))
        if name.startswith("Chat"):
            for count in EVENTS_PER_READ:
                ratio = medians[name, count] / medians["OpenResponses, text", count]
                missed += at_most(f"{name}, {count} per read, against OpenResponses", ratio, TARGET)
    Console().print(table)
    return missed
