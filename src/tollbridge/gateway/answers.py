"""What a scripted model says, before it becomes items and events."""

from __future__ import annotations

from typing import Any

import msgspec

from tollbridge.gateway.counting import count_text, split_tokens


class Say(msgspec.Struct, frozen=True, tag="say"):
    text: str
    # Citations as (phrase in the text, url, title).
    cites: tuple[tuple[str, str, str], ...] = ()


class Think(msgspec.Struct, frozen=True, tag="think"):
    text: str


class Refuse(msgspec.Struct, frozen=True, tag="refuse"):
    text: str


class Call(msgspec.Struct, frozen=True, tag="call"):
    name: str
    arguments: str


class Draw(msgspec.Struct, frozen=True, tag="draw"):
    """An image, as base64 of its bytes."""

    png: str


Block = Say | Think | Refuse | Call | Draw
IMAGE_TOKENS = 16  # what making an image costs


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks in their order. `cut` is why the last one is incomplete; `pace` the seconds a token takes."""

    blocks: tuple[Block, ...]
    cut: str | None = None
    error: dict[str, Any] | None = None
    pace: float = 0.0

    @property
    def output_tokens(self) -> int:
        return sum(count_block(block) for block in self.blocks)

    @property
    def reasoning_tokens(self) -> int:
        return sum(count_block(block) for block in self.blocks if isinstance(block, Think))


def block_text(block: Block) -> str:
    match block:
        case Call():
            return block.arguments
        case Draw():
            return ""
        case _:
            return block.text


def count_block(block: Block) -> int:
    if isinstance(block, Draw):
        return IMAGE_TOKENS
    return count_text(block_text(block)) + (count_text(block.name) if isinstance(block, Call) else 0)


def cut_answer(answer: Answer, limit: int, reason: str = "max_output_tokens") -> Answer:
    """The answer as far as `limit` tokens go. One that fits is left whole."""
    if answer.output_tokens <= limit:
        return answer
    kept: list[Block] = []
    for block in answer.blocks:
        size = count_block(block)
        if size > limit:
            shorter = _cut_block(block, limit)
            if shorter is not None:
                kept.append(shorter)
            break
        kept.append(block)
        limit -= size
    return msgspec.structs.replace(answer, blocks=tuple(kept), cut=reason)


def _cut_block(block: Block, limit: int) -> Block | None:
    if isinstance(block, Draw):
        return None
    if isinstance(block, Call):
        limit -= count_text(block.name)
        text = _first(block.arguments, limit)
        return msgspec.structs.replace(block, arguments=text) if limit > 0 else None
    text = _first(block.text, limit)
    if not text:
        return None
    if isinstance(block, Say):
        return Say(text, tuple(cite for cite in block.cites if cite[0] in text))
    return msgspec.structs.replace(block, text=text)


def _first(text: str, limit: int) -> str:
    return "".join(split_tokens(text)[: max(limit, 0)])
