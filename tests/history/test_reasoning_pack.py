"""Reasoning packed up on its way through an editor."""

from __future__ import annotations

from tollbridge.history.reasoning import PACK_LIMIT, ReasoningPacker
from tollbridge.types.events import Corrected, ReasoningDelta, ReasoningEnded, TextDelta, ToolCall
from tollbridge.types.messages import DataPart
from tollbridge.types.reasoning import (
    PACK_MIME,
    Origin,
    ReasoningBlock,
    ReasoningPack,
    bind,
    read_reasoning_pack,
    unbind,
)

HERE = Origin.of("m", "http://here")
SEALED = {"encrypted_content": "x"}


def packed(carrying: ReasoningPacker) -> ReasoningPack:
    [part] = carrying.close()
    assert isinstance(part, DataPart)
    assert part.mime == PACK_MIME
    found = read_reasoning_pack(part.data)
    assert found is not None
    return found


def test_each_thought_is_packed_with_what_it_led_to() -> None:
    carrying = ReasoningPacker(HERE)
    carrying.take([ReasoningDelta("On", "a"), ReasoningDelta("e.", "a"), ReasoningEnded("a", SEALED)])
    carrying.take([TextDelta("I look.")])
    carrying.take([ReasoningDelta("Two.", "b"), ReasoningEnded("b", None), ToolCall("c1", "f", {})])
    pack = packed(carrying)
    assert pack.blocks == (
        ReasoningBlock("One.", "a", SEALED, None, 0),
        ReasoningBlock("Two.", "b", None, "c1", 7),
    )
    assert pack.said == 7


def test_a_thought_that_ends_late_stands_where_it_began() -> None:
    carrying = ReasoningPacker(HERE)
    carrying.take([ReasoningDelta("One.", "a"), ToolCall("c1", "f", {}), TextDelta("Hi")])
    carrying.take([ReasoningEnded("a", SEALED)])
    assert packed(carrying).blocks == (ReasoningBlock("One.", "a", SEALED, "c1", 0),)


def test_a_thought_stands_before_a_call_that_is_not_offered_yet() -> None:
    carrying = ReasoningPacker(HERE)
    carrying.take([TextDelta("Hi"), ReasoningEnded("a", SEALED), ToolCall("c1", "f", "{", offered=False)])
    assert packed(carrying).blocks == (ReasoningBlock("", "a", SEALED, "c1", 2),)


def test_the_end_of_a_thought_is_marked_with_whose_it_is() -> None:
    [_, ended] = ReasoningPacker(HERE).take([ReasoningDelta("One.", "a"), ReasoningEnded("a", SEALED)])
    assert isinstance(ended, ReasoningEnded)
    bound, proof = unbind(ended.metadata)
    assert bound is not None
    assert (bound.origin, bound.plain, proof) == (HERE, False, SEALED)


def test_a_thought_without_a_proof_is_marked_as_plain() -> None:
    [_, ended] = ReasoningPacker(HERE).take([ReasoningDelta("One.", "a"), ReasoningEnded("a")])
    assert isinstance(ended, ReasoningEnded)
    assert ended.metadata == bind(HERE, None)


def test_what_a_call_carries_goes_before_it_and_into_the_pack() -> None:
    carrying, signed = ReasoningPacker(HERE), {"google": {"thoughtSignature": "s"}}
    call = ToolCall("c1", "f", {}, metadata=signed)
    assert carrying.take([call]) == [ReasoningEnded(None, bind(HERE, signed, call="c1")), call]
    assert packed(carrying).calls == {"c1": signed}


def test_redacted_thoughts_have_no_words_and_are_carried() -> None:
    carrying, redacted = ReasoningPacker(HERE), {"anthropic": {"redactedData": "r"}}
    carrying.take([ReasoningEnded("a", redacted), TextDelta("Hi")])
    assert packed(carrying).blocks == (ReasoningBlock("", "a", redacted, None, 0),)


def test_a_thought_is_carried_as_it_was_corrected() -> None:
    carrying = ReasoningPacker(HERE)
    carrying.take([ReasoningDelta("On", "a"), Corrected("One.", 2, "reasoning", "a"), Corrected("x", 1)])
    carrying.take([ReasoningEnded("a", SEALED)])
    assert packed(carrying).blocks == (ReasoningBlock("One.", "a", SEALED),)


def test_words_that_were_taken_back_are_not_carried() -> None:
    carrying = ReasoningPacker(HERE)
    carrying.take(
        [ReasoningDelta("Wrong.", "a"), ReasoningDelta("Right.", "a", 6), ReasoningEnded("a", SEALED)]
    )
    assert packed(carrying).blocks[0].text == "Right."


def test_an_answer_without_reasoning_has_no_pack() -> None:
    carrying = ReasoningPacker(HERE)
    carrying.take([TextDelta("Hi"), ToolCall("c1", "f", {})])
    assert carrying.close() == []


def test_a_pack_that_is_too_large_is_not_sent() -> None:
    carrying = ReasoningPacker(HERE)
    carrying.take([ReasoningDelta("x" * PACK_LIMIT, "a"), ReasoningEnded("a", SEALED)])
    assert carrying.close() == []
