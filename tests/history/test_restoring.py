"""Restoring packed reasoning at its position."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.turns import AnswerParts

from tollbridge.history.reasoning import restore_reasoning
from tollbridge.types.events import Event, ReasoningEnded, TextDelta, ToolCall
from tollbridge.types.messages import (
    DataPart,
    Origin,
    Part,
    ReasoningBlock,
    ReasoningPack,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    add_origin,
    read_reasoning_pack,
)

HERE = Origin.of("m", "http://here")


def answer_of(shape: str) -> list[Event]:
    """Return the events of an answer: a letter is a reasoning block, a digit a call, a dot a text."""
    events: list[Event] = []
    for at, sign in enumerate(shape):
        if sign == ".":
            events.append(TextDelta(f"text {at}. "))
        elif sign.isdigit():
            events.append(ToolCall(sign, "f", {}))
        else:
            events.append(ReasoningEnded(sign, {"encrypted_content": sign}))
    return events


def shape_of(parts: Sequence[Part]) -> str:
    return "".join(
        "."
        if isinstance(part, TextPart)
        else part.call_id
        if isinstance(part, ToolCallPart)
        else part.id or ""
        for part in parts
        if isinstance(part, TextPart | ToolCallPart | ThinkingPart)
    )


def pack_answer(shape: str) -> tuple[list[Part], ReasoningPack]:
    answer = AnswerParts(origin=HERE)
    parts = answer.take(answer_of(shape))
    [*more, pack], _ = answer.close()
    assert isinstance(pack, DataPart)
    reasoning_pack = read_reasoning_pack(pack.data)
    assert reasoning_pack is not None
    return [*parts, *more], reasoning_pack


def merge_as_editor(parts: Sequence[Part]) -> list[Part]:
    """Remove the thinking parts and join adjacent texts, as editors do."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            merged[-1] = TextPart(last.text + part.text)
        elif not isinstance(part, ThinkingPart):
            merged.append(part)
    return merged


@pytest.mark.parametrize("shape", ["a.b.", "a1b.", ".a1", "a.b1c2", "ab.c1", "a1.b2.c.", ".a..b."])
def test_reasoning_is_restored_at_its_position(shape: str) -> None:
    parts, pack = pack_answer(shape)
    assert shape_of(restore_reasoning(parts, pack)) == shape
    again = restore_reasoning(merge_as_editor(parts), pack)
    assert shape_of(again) == re.sub(r"\.+", ".", shape)


def named(kinds: str) -> str:
    """Give reasoning blocks and calls distinct names, between a block and a text."""
    letters, digits = iter("bcdefghij"), iter("123456789")
    middle = (next(letters) if kind == "a" else next(digits) if kind == "1" else kind for kind in kinds)
    return f"a{''.join(middle)}."


@given(st.text("a.1", max_size=9).map(named))
def test_the_order_of_any_answer_is_restored(shape: str) -> None:
    parts, pack = pack_answer(shape)
    assert shape_of(restore_reasoning(parts, pack)) == shape
    together = merge_as_editor(parts)
    again = restore_reasoning(together, pack)
    assert shape_of(again) == re.sub(r"\.+", ".", shape)
    assert merge_as_editor(again) == together


def test_a_text_that_was_changed_is_not_split() -> None:
    parts, pack = pack_answer("a.b.")
    [text] = merge_as_editor(parts)
    assert isinstance(text, TextPart)
    shorter = TextPart(text.text[:-1])
    assert restore_reasoning([shorter], pack)[-1] == shorter
    assert shape_of(restore_reasoning([shorter], pack)) == "ab."
    assert shape_of(restore_reasoning([ToolCallPart("1", "f", {})], pack)) == "ab1"


def pack_blocks(*blocks: ReasoningBlock) -> ReasoningPack:
    return ReasoningPack(HERE.model, HERE.gateway, blocks)


SEALED = {"encrypted_content": "x"}
CALL = ToolCallPart("1", "f", {})


def test_blocks_without_a_position_come_first() -> None:
    pack = pack_blocks(ReasoningBlock("One.", "a", SEALED), ReasoningBlock("Two.", "b", SEALED, "1"))
    assert shape_of(restore_reasoning([TextPart("Hi"), CALL], pack)) == "a.b1"


def test_the_thinking_parts_of_the_editor_are_replaced() -> None:
    merged = ThinkingPart("One.Two.", "a", add_origin(HERE, SEALED))
    pack = pack_blocks(ReasoningBlock("One.", "a", SEALED))
    assert shape_of(restore_reasoning([TextPart("Hi"), merged, CALL], pack)) == "a.1"


def test_equal_reasoning_blocks_are_both_restored() -> None:
    kept = ThinkingPart("One.", "a", add_origin(HERE, SEALED))
    block = ReasoningBlock("One.", "a", SEALED)
    pack = pack_blocks(block, ReasoningBlock("One.", "a", SEALED, before="1"))
    assert shape_of(restore_reasoning([kept, CALL, kept, TextPart("Hi")], pack)) == "aa1."
