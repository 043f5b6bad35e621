"""Packing the reasoning of an answer."""

from __future__ import annotations

from tollbridge.history.reasoning import PACK_LIMIT, ReasoningPacker
from tollbridge.types.events import Corrected, ReasoningDelta, ReasoningEnded, TextDelta, ToolCall
from tollbridge.types.messages import (
    PACK_MIME,
    DataPart,
    Origin,
    ReasoningBlock,
    ReasoningPack,
    add_origin,
    read_reasoning_pack,
    split_metadata,
)

HERE = Origin.of("m", "http://here")
SEALED = {"encrypted_content": "x"}


def packed(packer: ReasoningPacker) -> ReasoningPack:
    [part] = packer.close()
    assert isinstance(part, DataPart)
    assert part.mime == PACK_MIME
    pack = read_reasoning_pack(part.data)
    assert pack is not None
    return pack


def test_each_block_is_packed_with_its_position() -> None:
    packer = ReasoningPacker(HERE)
    packer.take([ReasoningDelta("On", "a"), ReasoningDelta("e.", "a"), ReasoningEnded("a", SEALED)])
    packer.take([TextDelta("I look.")])
    packer.take([ReasoningDelta("Two.", "b"), ReasoningEnded("b", None), ToolCall("c1", "f", {})])
    pack = packed(packer)
    assert pack.blocks == (
        ReasoningBlock("One.", "a", SEALED, None, 0),
        ReasoningBlock("Two.", "b", None, "c1", 7),
    )
    assert pack.text_length == 7


def test_a_block_that_ends_late_has_the_position_of_its_start() -> None:
    packer = ReasoningPacker(HERE)
    packer.take([ReasoningDelta("One.", "a"), ToolCall("c1", "f", {}), TextDelta("Hi")])
    packer.take([ReasoningEnded("a", SEALED)])
    assert packed(packer).blocks == (ReasoningBlock("One.", "a", SEALED, "c1", 0),)


def test_a_block_can_precede_a_call_that_is_not_offered() -> None:
    packer = ReasoningPacker(HERE)
    packer.take([TextDelta("Hi"), ReasoningEnded("a", SEALED), ToolCall("c1", "f", "{", offered=False)])
    assert packed(packer).blocks == (ReasoningBlock("", "a", SEALED, "c1", 2),)


def test_the_end_of_a_block_is_marked_with_its_origin() -> None:
    [_, ended] = ReasoningPacker(HERE).take([ReasoningDelta("One.", "a"), ReasoningEnded("a", SEALED)])
    assert isinstance(ended, ReasoningEnded)
    bound, proof = split_metadata(ended.metadata)
    assert bound is not None
    assert (bound.origin, bound.plain, proof) == (HERE, False, SEALED)


def test_a_block_without_a_proof_is_marked_as_plain() -> None:
    [_, ended] = ReasoningPacker(HERE).take([ReasoningDelta("One.", "a"), ReasoningEnded("a")])
    assert isinstance(ended, ReasoningEnded)
    assert ended.metadata == add_origin(HERE, None)


def test_the_metadata_of_a_call_is_marked_and_packed() -> None:
    packer, signed = ReasoningPacker(HERE), {"google": {"thoughtSignature": "s"}}
    call = ToolCall("c1", "f", {}, metadata=signed)
    assert packer.take([call]) == [ReasoningEnded(None, add_origin(HERE, signed, call="c1")), call]
    assert packed(packer).calls == {"c1": signed}


def test_redacted_reasoning_without_text_is_packed() -> None:
    packer, redacted = ReasoningPacker(HERE), {"anthropic": {"redactedData": "r"}}
    packer.take([ReasoningEnded("a", redacted), TextDelta("Hi")])
    assert packed(packer).blocks == (ReasoningBlock("", "a", redacted, None, 0),)


def test_corrected_reasoning_is_packed() -> None:
    packer = ReasoningPacker(HERE)
    packer.take([ReasoningDelta("On", "a"), Corrected("One.", 2, "reasoning", "a"), Corrected("x", 1)])
    packer.take([ReasoningEnded("a", SEALED)])
    assert packed(packer).blocks == (ReasoningBlock("One.", "a", SEALED),)


def test_replaced_reasoning_is_not_packed() -> None:
    packer = ReasoningPacker(HERE)
    packer.take(
        [ReasoningDelta("Wrong.", "a"), ReasoningDelta("Right.", "a", 6), ReasoningEnded("a", SEALED)]
    )
    assert packed(packer).blocks[0].text == "Right."


def test_an_answer_without_reasoning_has_no_pack() -> None:
    packer = ReasoningPacker(HERE)
    packer.take([TextDelta("Hi"), ToolCall("c1", "f", {})])
    assert packer.close() == []


def test_a_too_large_pack_is_not_created() -> None:
    packer = ReasoningPacker(HERE)
    packer.take([ReasoningDelta("x" * PACK_LIMIT, "a"), ReasoningEnded("a", SEALED)])
    assert packer.close() == []
