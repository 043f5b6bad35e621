"""Which reasoning goes back."""

from __future__ import annotations

from typing import Any

from tollbridge.history.normalize import UNFOLLOWED, NormalizedRequest, normalize_request
from tollbridge.history.reasoning import DUPLICATE, FOREIGN, REFUSED, STALE, UNPROVEN, UNWANTED
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.quirks import LearnedQuirks, Quirks
from tollbridge.types.reasoning import PACK_MIME, Origin, ReasoningBlock, ReasoningPack, bind, digest
from tollbridge.types.text import write_json

HERE, AWAY = Origin.of("m", "http://here"), Origin.of("m", "http://away")
SEALED = {"id": "rs_1", "encrypted_content": "x"}
SIGNED = {"anthropic": {"signature": "s"}}
HI, CALL, RESULT = Message(Role.USER, "Hi"), ToolCallPart("c1", "f", {}), ToolResultPart("c1", "ok")


def thought(proof: dict[str, Any] | None = None, origin: Origin = HERE, text: str = "Hm.") -> ThinkingPart:
    return ThinkingPart(text, "rs_1", bind(origin, proof))


def made(*parts: Part, refused: frozenset[str] = frozenset(), reasoning: bool = True) -> NormalizedRequest:
    """After a question, an answer of these parts, and the result of its call."""
    messages = (HI, Message(Role.ASSISTANT, parts), Message(Role.USER, (RESULT,)))
    learned = LearnedQuirks(Quirks(reasoning=reasoning), refused)
    return normalize_request(ChatRequest(model="m", messages=messages), learned, HERE)


def thoughts(done: NormalizedRequest) -> list[ThinkingPart]:
    return [p for message in done.request.messages for p in message.parts if isinstance(p, ThinkingPart)]


def test_the_readers_own_reasoning_stays_with_what_proves_it() -> None:
    for proof in (
        SEALED,
        SIGNED,
        {"anthropic": {"redactedData": "r"}},
        {"google": {"thoughtSignature": "t"}},
    ):
        done = made(thought(proof), CALL)
        assert thoughts(done) == [thought(proof)]
        assert done.changes == ()


def test_reasoning_of_another_model_or_gateway_is_left_out() -> None:
    for foreign in (thought(SEALED, AWAY), ThinkingPart("Hm.", None, SEALED), ThinkingPart("Hm.")):
        done = made(foreign, CALL)
        assert thoughts(done) == []
        assert done.changes == (FOREIGN,)


def test_reasoning_that_was_refused_is_left_out_and_other_stays() -> None:
    done = made(thought(SEALED), thought(SIGNED), CALL, refused=frozenset({digest(SEALED)}))
    assert thoughts(done) == [thought(SIGNED)]
    assert done.changes == (REFUSED,)


def test_a_server_that_takes_none_gets_none() -> None:
    assert made(thought(SEALED), CALL, reasoning=False).changes == (UNWANTED,)


def test_plain_reasoning_helps_through_one_question() -> None:
    assert thoughts(made(thought(), CALL)) == [thought()]
    messages = (HI, Message(Role.ASSISTANT, (thought(), TextPart("Hello."))), HI)
    done = normalize_request(ChatRequest(model="m", messages=messages), origin=HERE)
    assert thoughts(done) == []
    assert done.changes == (STALE,)


def test_a_thought_that_stands_there_twice_is_sent_once() -> None:
    answer = Message(Role.ASSISTANT, (thought(SEALED), TextPart("Hello.")))
    done = normalize_request(ChatRequest(model="m", messages=(HI, answer, answer, HI)), origin=HERE)
    assert thoughts(done) == [thought(SEALED)]
    assert done.changes == (DUPLICATE,)
    assert thoughts(made(thought(SIGNED), TextPart("Hello."), thought(SIGNED), CALL)) == [thought(SIGNED)]


def test_thoughts_that_are_alike_and_not_named_stay_in_their_answers() -> None:
    answer = Message(Role.ASSISTANT, (thought(SIGNED), TextPart("Hello.")))
    messages = (HI, answer, HI, answer, HI)
    done = normalize_request(ChatRequest(model="m", messages=messages), origin=HERE)
    assert thoughts(done) == [thought(SIGNED)] * 2
    assert done.changes == ()


def test_a_thought_without_words_or_proof_is_nothing() -> None:
    assert made(thought(text=" "), CALL).changes == (UNPROVEN,)


def test_reasoning_that_leads_to_nothing_is_left_out() -> None:
    messages = (HI, Message(Role.ASSISTANT, (thought(SEALED),)), HI)
    done = normalize_request(ChatRequest(model="m", messages=messages), origin=HERE)
    assert thoughts(done) == []
    assert done.changes == (UNFOLLOWED,)


def test_streamed_pieces_are_one_thought_with_the_proof_that_came_last() -> None:
    pieces = (
        ThinkingPart("H", "rs_1"),
        ThinkingPart("m.", "rs_1"),
        ThinkingPart("", "rs_1", bind(HERE, SEALED)),
    )
    assert thoughts(made(*pieces, CALL)) == [thought(SEALED)]


def test_the_parts_of_a_summary_are_one_thought() -> None:
    pieces = ThinkingPart("One.", "rs_1"), ThinkingPart("Two.", "rs_1:1")
    [found] = thoughts(made(*pieces, ThinkingPart("", "rs_1", bind(HERE, SEALED)), CALL))
    assert found.text == "One.\n\nTwo."


def pack(*blocks: ReasoningBlock, origin: Origin = HERE, **calls: Any) -> DataPart:
    return DataPart(
        write_json(ReasoningPack(origin.model, origin.gateway, blocks, calls)).encode(), PACK_MIME
    )


def test_what_the_marker_carries_stands_for_thoughts_an_editor_ran_together() -> None:
    other = ToolCallPart("c2", "f", {})
    blocks = ReasoningBlock("One.", "rs_1", SEALED, "c1"), ReasoningBlock("Two.", "rs_2", SIGNED, "c2")
    messages = (
        HI,
        Message(Role.ASSISTANT, (thought(SIGNED, text="One.Two."), CALL, other, pack(*blocks))),
        Message(Role.USER, (RESULT, ToolResultPart("c2", "ok"))),
    )
    done = normalize_request(ChatRequest(model="m", messages=messages), origin=HERE)
    parts = [part for message in done.request.messages for part in message.parts]
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


def test_a_marker_of_another_model_is_no_reasoning_of_ours_and_never_a_file() -> None:
    done = made(pack(ReasoningBlock("One.", "rs_1", SEALED), origin=AWAY), CALL)
    assert thoughts(done) == []
    assert not any(isinstance(part, DataPart) for message in done.request.messages for part in message.parts)


def test_the_signature_of_a_call_goes_back_on_the_call() -> None:
    proof = {"thought_signature": "s"}
    for carrier in (ThinkingPart("", None, bind(HERE, proof, call="c1")), pack(c1=proof)):
        [call] = [
            p for m in made(carrier, CALL).request.messages for p in m.parts if isinstance(p, ToolCallPart)
        ]
        assert call.metadata == proof
