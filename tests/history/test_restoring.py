"""Carried thoughts come back to their places."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.history.answer import AnswerParts
from tollbridge.history.reasoning import restore_reasoning
from tollbridge.types.events import Event, ReasoningEnded, TextDelta, ToolCall
from tollbridge.types.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart
from tollbridge.types.reasoning import Origin, ReasoningBlock, ReasoningPack, bind, read_reasoning_pack

HERE = Origin.of("m", "http://here")


def answer_of(shape: str) -> list[Event]:
    """An answer: a letter is a thought, a digit a call, a dot some text."""
    made: list[Event] = []
    for at, sign in enumerate(shape):
        if sign == ".":
            made.append(TextDelta(f"text {at}. "))
        elif sign.isdigit():
            made.append(ToolCall(sign, "f", {}))
        else:
            made.append(ReasoningEnded(sign, {"encrypted_content": sign}))
    return made


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


def carried(shape: str) -> tuple[list[Part], ReasoningPack]:
    answer = AnswerParts(origin=HERE)
    parts = answer.take(answer_of(shape))
    [*more, pack], _ = answer.close()
    assert isinstance(pack, DataPart)
    found = read_reasoning_pack(pack.data)
    assert found is not None
    return [*parts, *more], found


def run_together(parts: Sequence[Part]) -> list[Part]:
    """Without its thoughts, and with every run of texts made one, as editors keep an answer."""
    kept: list[Part] = []
    for part in parts:
        last = kept[-1] if kept else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            kept[-1] = TextPart(last.text + part.text)
        elif not isinstance(part, ThinkingPart):
            kept.append(part)
    return kept


@pytest.mark.parametrize("shape", ["a.b.", "a1b.", ".a1", "a.b1c2", "ab.c1", "a1.b2.c.", ".a..b."])
def test_thoughts_stand_where_they_stood(shape: str) -> None:
    parts, pack = carried(shape)
    assert shape_of(restore_reasoning(parts, pack)) == shape
    again = restore_reasoning(run_together(parts), pack)
    assert shape_of(again) == re.sub(r"\.+", ".", shape)


def named(kinds: str) -> str:
    """Thoughts and calls numbered, between a thought and a text."""
    letters, digits = iter("bcdefghij"), iter("123456789")
    middle = (next(letters) if kind == "a" else next(digits) if kind == "1" else kind for kind in kinds)
    return f"a{''.join(middle)}."


@given(st.text("a.1", max_size=9).map(named))
def test_any_answer_comes_back_in_its_order(shape: str) -> None:
    parts, pack = carried(shape)
    assert shape_of(restore_reasoning(parts, pack)) == shape
    together = run_together(parts)
    again = restore_reasoning(together, pack)
    assert shape_of(again) == re.sub(r"\.+", ".", shape)
    assert run_together(again) == together


def test_a_text_that_is_not_as_it_was_told_is_not_cut() -> None:
    parts, pack = carried("a.b.")
    [text] = run_together(parts)
    assert isinstance(text, TextPart)
    shorter = TextPart(text.text[:-1])
    assert restore_reasoning([shorter], pack)[-1] == shorter
    assert shape_of(restore_reasoning([shorter], pack)) == "ab."
    assert shape_of(restore_reasoning([ToolCallPart("1", "f", {})], pack)) == "ab1"


def old(*blocks: ReasoningBlock) -> ReasoningPack:
    return ReasoningPack(HERE.model, HERE.gateway, blocks)


SEALED = {"encrypted_content": "x"}
CALL = ToolCallPart("1", "f", {})


def test_a_pack_without_places_is_read_as_before() -> None:
    pack = old(ReasoningBlock("One.", "a", SEALED), ReasoningBlock("Two.", "b", SEALED, "1"))
    assert shape_of(restore_reasoning([TextPart("Hi"), CALL], pack)) == "a.b1"


def test_where_a_pack_has_no_places_thoughts_that_came_back_whole_have_theirs() -> None:
    kept = ThinkingPart("One.", "a", bind(HERE, SEALED))
    pack = old(ReasoningBlock("One.", "a", SEALED))
    assert shape_of(restore_reasoning([TextPart("Hi"), kept, CALL], pack)) == ".a1"
    changed = ThinkingPart("One.Two.", "a", bind(HERE, SEALED))
    assert shape_of(restore_reasoning([TextPart("Hi"), changed, CALL], pack)) == "a.1"


def test_the_same_thought_thought_twice_is_restored_twice() -> None:
    kept = ThinkingPart("One.", "a", bind(HERE, SEALED))
    pack = old(ReasoningBlock("One.", "a", SEALED), ReasoningBlock("One.", "a", SEALED))
    found = restore_reasoning([kept, CALL, kept, TextPart("Hi")], pack)
    assert shape_of(found) == "a1a."
