"""Which reasoning is sent back to the model."""

from __future__ import annotations

from typing import Any

from tollbridge.history.normalize import UNFOLLOWED, NormalizedRequest, normalize_request
from tollbridge.history.reasoning import DUPLICATE, FOREIGN, REFUSED, STALE, UNPROVEN, UNWANTED
from tollbridge.types.messages import (
    PACK_MIME,
    ChatRequest,
    DataPart,
    Message,
    Origin,
    Part,
    ReasoningBlock,
    ReasoningPack,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    add_origin,
    digest,
)
from tollbridge.types.quirks import LearnedQuirks, Quirks
from tollbridge.types.text import write_json

HERE, AWAY = Origin.of("m", "http://here"), Origin.of("m", "http://away")
SEALED = {"id": "rs_1", "encrypted_content": "x"}
SIGNED = {"anthropic": {"signature": "s"}}
HI, CALL, RESULT = Message(Role.USER, "Hi"), ToolCallPart("c1", "f", {}), ToolResultPart("c1", "ok")


def thought(proof: dict[str, Any] | None = None, origin: Origin = HERE, text: str = "Hm.") -> ThinkingPart:
    return ThinkingPart(text, "rs_1", add_origin(origin, proof))


def normalize(
    *parts: Part, refused: frozenset[str] = frozenset(), reasoning: bool = True
) -> NormalizedRequest:
    """Normalize a question, an answer of these parts, and the result of its call."""
    messages = (HI, Message(Role.ASSISTANT, parts), Message(Role.USER, (RESULT,)))
    learned = LearnedQuirks(Quirks(reasoning=reasoning), refused)
    return normalize_request(ChatRequest(model="m", messages=messages), learned, HERE)


def thoughts(normalized: NormalizedRequest) -> list[ThinkingPart]:
    return [
        p for message in normalized.request.messages for p in message.parts if isinstance(p, ThinkingPart)
    ]


def test_reasoning_of_the_same_origin_is_kept_with_its_proof() -> None:
    for proof in (
        SEALED,
        SIGNED,
        {"anthropic": {"redactedData": "r"}},
        {"google": {"thoughtSignature": "t"}},
    ):
        normalized = normalize(thought(proof), CALL)
        assert thoughts(normalized) == [thought(proof)]
        assert normalized.changes == ()


def test_reasoning_of_another_model_or_gateway_is_dropped() -> None:
    for foreign in (thought(SEALED, AWAY), ThinkingPart("Hm.", None, SEALED), ThinkingPart("Hm.")):
        normalized = normalize(foreign, CALL)
        assert thoughts(normalized) == []
        assert normalized.changes == (FOREIGN,)


def test_only_refused_reasoning_is_dropped() -> None:
    normalized = normalize(thought(SEALED), thought(SIGNED), CALL, refused=frozenset({digest(SEALED)}))
    assert thoughts(normalized) == [thought(SIGNED)]
    assert normalized.changes == (REFUSED,)


def test_reasoning_is_dropped_if_the_server_does_not_accept_it() -> None:
    assert normalize(thought(SEALED), CALL, reasoning=False).changes == (UNWANTED,)


def test_unsigned_reasoning_is_kept_until_the_next_question() -> None:
    assert thoughts(normalize(thought(), CALL)) == [thought()]
    messages = (HI, Message(Role.ASSISTANT, (thought(), TextPart("Hello."))), HI)
    normalized = normalize_request(ChatRequest(model="m", messages=messages), origin=HERE)
    assert thoughts(normalized) == []
    assert normalized.changes == (STALE,)


def test_duplicate_reasoning_is_removed() -> None:
    answer = Message(Role.ASSISTANT, (thought(SEALED), TextPart("Hello.")))
    normalized = normalize_request(ChatRequest(model="m", messages=(HI, answer, answer, HI)), origin=HERE)
    assert thoughts(normalized) == [thought(SEALED)]
    assert normalized.changes == (DUPLICATE,)
    assert thoughts(normalize(thought(SIGNED), TextPart("Hello."), thought(SIGNED), CALL)) == [
        thought(SIGNED)
    ]


def test_equal_reasoning_without_an_id_is_kept_in_different_answers() -> None:
    answer = Message(Role.ASSISTANT, (thought(SIGNED), TextPart("Hello.")))
    messages = (HI, answer, HI, answer, HI)
    normalized = normalize_request(ChatRequest(model="m", messages=messages), origin=HERE)
    assert thoughts(normalized) == [thought(SIGNED)] * 2
    assert normalized.changes == ()


def test_reasoning_without_text_and_proof_is_dropped() -> None:
    assert normalize(thought(text=" "), CALL).changes == (UNPROVEN,)


def test_reasoning_at_the_end_of_a_message_is_dropped() -> None:
    messages = (HI, Message(Role.ASSISTANT, (thought(SEALED),)), HI)
    normalized = normalize_request(ChatRequest(model="m", messages=messages), origin=HERE)
    assert thoughts(normalized) == []
    assert normalized.changes == (UNFOLLOWED,)


def test_streamed_pieces_of_reasoning_are_joined_with_their_proof() -> None:
    pieces = (
        ThinkingPart("H", "rs_1"),
        ThinkingPart("m.", "rs_1"),
        ThinkingPart("", "rs_1", add_origin(HERE, SEALED)),
    )
    assert thoughts(normalize(*pieces, CALL)) == [thought(SEALED)]


def test_the_parts_of_a_summary_are_joined() -> None:
    pieces = ThinkingPart("One.", "rs_1"), ThinkingPart("Two.", "rs_1:1")
    [joined] = thoughts(normalize(*pieces, ThinkingPart("", "rs_1", add_origin(HERE, SEALED)), CALL))
    assert joined.text == "One.\n\nTwo."


def pack(*blocks: ReasoningBlock, origin: Origin = HERE, **calls: Any) -> DataPart:
    return DataPart(
        write_json(ReasoningPack(origin.model, origin.gateway, blocks, calls)).encode(), PACK_MIME
    )


def test_packed_reasoning_replaces_merged_thinking_parts() -> None:
    other = ToolCallPart("c2", "f", {})
    blocks = ReasoningBlock("One.", "rs_1", SEALED, "c1"), ReasoningBlock("Two.", "rs_2", SIGNED, "c2")
    messages = (
        HI,
        Message(Role.ASSISTANT, (thought(SIGNED, text="One.Two."), CALL, other, pack(*blocks))),
        Message(Role.USER, (RESULT, ToolResultPart("c2", "ok"))),
    )
    normalized = normalize_request(ChatRequest(model="m", messages=messages), origin=HERE)
    parts = [part for message in normalized.request.messages for part in message.parts]
    kinds = [part.text if isinstance(part, ThinkingPart) else type(part).__name__ for part in parts]
    assert kinds == [
        "TextPart",
        "One.",
        "ToolCallPart",
        "ToolResultPart",
        "Two.",
        "ToolCallPart",
        "ToolResultPart",
    ]


def test_a_pack_of_another_model_is_dropped() -> None:
    normalized = normalize(pack(ReasoningBlock("One.", "rs_1", SEALED), origin=AWAY), CALL)
    assert thoughts(normalized) == []
    assert not any(
        isinstance(part, DataPart) for message in normalized.request.messages for part in message.parts
    )


def test_the_signature_of_a_call_is_restored() -> None:
    proof = {"thought_signature": "s"}
    for carrier in (ThinkingPart("", None, add_origin(HERE, proof, call="c1")), pack(c1=proof)):
        [call] = [
            p
            for m in normalize(carrier, CALL).request.messages
            for p in m.parts
            if isinstance(p, ToolCallPart)
        ]
        assert call.metadata == proof
