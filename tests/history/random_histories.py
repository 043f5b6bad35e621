"""Random histories: any parts in any order, with every defect that an editor or a server can cause."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    PACK_MIME,
    ChatRequest,
    DataPart,
    Message,
    NamedTool,
    Origin,
    Part,
    ReasoningBlock,
    ReasoningPack,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
    is_marker,
    read_reasoning_pack,
)
from tollbridge.types.text import write_json

MODEL = "tollbridge/demo"
HERE = Origin.of(MODEL, "http://here/v1")
AWAY = Origin.of("another/model", "http://away/v1")

_WORDS = (
    "hello",
    "“quoted”",
    "line\nbreak",
    "tab\t",
    "\u2028",
    "\x00",
    "😀",
    "\ud83d",
    "\ude00",
    "{}",
    "null",
    "",
)
_NAMES = ("list_dir", "read file", "größe", "a" * 70, "a" * 69 + "!", "", "mcp.server/tool", "x" * 64, "🛠")
_IDS = ("call_0", "call_1", "call_0", "toolu/1", "i" * 65, "i" * 64, "", "call 2", "chatcmpl-tool-é")
_BROKEN = (
    '{"a": 1',
    '{"path": "/x',
    "not json",
    "[1, 2]",
    '"{\\"a\\": 1}"',
    '{"a": 1,}',
    "",
    "NaN",
    "\ud800",
)
_MIMES = (
    "image/png",
    "image/jpeg",
    "application/pdf",
    "text/plain",
    "application/json",
    "usage",
    "",
    "IMAGE/PNG; x=y",
    "a b/c d",
)


class Maker:
    """Generates histories from a seed. All texts are distinct, so that each can be found in the request."""

    def __init__(self, seed: int, here: Origin = HERE, answer: Sequence[Part] = ()) -> None:
        """Create a generator.

        Args:
            seed: The seed of the random numbers.
            here: The origin that will receive the histories.
            answer: Parts of a real answer of `here` with reasoning and its pack. With them, no other
                reasoning of `here` is generated.
        """
        self._random = random.Random(seed)
        self._serial = 0
        self._here = here
        self._thoughts = [part for part in answer if isinstance(part, ThinkingPart) or is_marker(part)]

    def request(self) -> ChatRequest:
        pick = self._random
        names = [self._name() for _ in range(pick.randrange(4))]
        choices: list[Any] = [None, "auto", "none", *(NamedTool(name) for name in names)]
        return ChatRequest(
            model=MODEL,
            messages=tuple(self._message() for _ in range(pick.randrange(8))),
            tools=tuple(Tool(name, "does it", pick.choice([None, {}, {"properties": {}}])) for name in names),
            tool_choice=pick.choice(choices) if names else None,
            metadata=pick.choice([None, {"a": "b"}, {"k" * 70: "v" * 600}, {str(n): "v" for n in range(20)}]),
            max_output_tokens=pick.choice([None, 1, 16, 500]),
        )

    def _message(self) -> Message:
        return Message(
            self._random.choice(list(Role)), tuple(self._part() for _ in range(self._random.randrange(6)))
        )

    def _part(self) -> Part:
        makers: list[Callable[[], Part]] = [self._text, self._text, self._data]
        makers += [self._thinking, self._call, self._result]
        return self._random.choice(makers)()

    def _text(self) -> TextPart:
        words = [self._random.choice(_WORDS) for _ in range(self._random.randrange(3))]
        if self._random.random() < 0.15:
            return TextPart(self._random.choice(["", " ", "\n\t "]))
        return TextPart(" ".join([self._mark("text"), *words]))

    def _data(self) -> DataPart:
        mark = self._mark("data").encode()
        kinds = [
            draw_png() + mark,
            b"%PDF-1.7 " + mark,
            mark,
            b'{"a": "' + mark + b'"}',
            b"",
            b"\xff\xfe\x80" + mark,
        ]
        return DataPart(
            self._random.choice(kinds),
            self._random.choice(_MIMES),
            self._random.choice([None, "file.bin", "né.pdf"]),
        )

    def _thinking(self) -> ThinkingPart | DataPart:
        text, origin = self._mark("thought"), self._random.choice([self._here, AWAY])
        if self._thoughts and origin is self._here:
            return self._genuine()
        proof = self._random.choice([None, {"encrypted_content": f"sealed-{text}"}, {"signature": text}])
        if self._random.random() < 0.2:
            block = ReasoningBlock(text, "rs_1", proof, self._random.choice([None, "call_0"]))
            return DataPart(
                write_json(ReasoningPack(origin.model, origin.gateway, (block,))).encode(), PACK_MIME
            )
        bound = self._random.choice(
            [add_origin(origin, proof), proof, add_origin(origin, {"thought_signature": "x"}, call="call_0")]
        )
        return ThinkingPart(
            self._random.choice(["", text]), self._random.choice([None, "rs_1", "rs_2:1"]), bound
        )

    def _genuine(self) -> ThinkingPart | DataPart:
        """Return a complete reasoning block of the answer, joined as by an editor, or the pack."""
        pack = next(part for part in self._thoughts if isinstance(part, DataPart))
        if self._random.random() < 0.3:
            return pack
        carried = read_reasoning_pack(pack.data)
        assert carried is not None
        block = self._random.choice(carried.blocks)
        return ThinkingPart(block.text, block.id, add_origin(self._here, block.proof))

    def _call(self) -> ToolCallPart:
        values: list[Any] = [
            {"text": self._mark("input")},
            {},
            None,
            [1],
            3.5,
            float("nan"),
            {"s": "\ud800", "n": 2**70},
        ]
        value = self._random.choice([*values, self._mark("raw") + self._random.choice(_BROKEN)])
        return ToolCallPart(self._random.choice(_IDS), self._name(), value)

    def _result(self) -> ToolResultPart:
        contents: list[Callable[[], TextPart | DataPart]] = [self._text, self._data]
        contents_chosen = tuple(self._random.choice(contents)() for _ in range(self._random.randrange(3)))
        return ToolResultPart(self._random.choice(_IDS), contents_chosen, self._random.random() < 0.3)

    def _name(self) -> str:
        return self._random.choice(_NAMES)

    def _mark(self, kind: str) -> str:
        self._serial += 1
        return f"{kind}{self._serial}z{zlib.crc32(str(self._serial).encode()):08x}"
