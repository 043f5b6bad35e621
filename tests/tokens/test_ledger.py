"""The ledger: exact where the truth was told, close everywhere else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.tokens.conversations import (
    MODEL,
    PROSE,
    TOOLS,
    assistant,
    hidden_count,
    hidden_text,
    request,
    result,
    system,
    user,
)
from tollbridge.tokens.ledger import Ledger
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
)
from tollbridge.types.usage import Usage

START = (system(PROSE * 20), user(PROSE * 3))


def told(ledger: Ledger, asked: ChatRequest) -> int:
    """The truth about a request, told to the ledger."""
    truth = hidden_count(asked)
    assert ledger.record(asked, Usage(truth))
    return truth


def grow(ledger: Ledger, messages: Sequence[Message], turns: int) -> list[Message]:
    """Some turns of a conversation, each of them told."""
    for turn in range(turns):
        told(ledger, request(messages))
        messages = [
            *messages,
            assistant(f"Answer {turn}: {PROSE * (turn % 3 + 1)}"),
            user(f"def step_{turn}(x):\n    return x + {turn}\n" * 4),
        ]
    return list(messages)


def error(ledger: Ledger, asked: ChatRequest) -> float:
    truth = hidden_count(asked)
    return abs(ledger.estimate(asked).tokens - truth) / truth


def test_nothing_known_is_an_estimate() -> None:
    estimate = Ledger().estimate(request(START, TOOLS))
    assert estimate.method == "estimated"
    assert estimate.confidence == 0.5
    assert estimate.tokens > 0


@pytest.mark.parametrize(
    "extra",
    [
        {"providerOptions": {"anthropic": {"contextManagement": {"edits": [{"type": "clear_tool_uses"}]}}}},
        {"context_management": [{"type": "compaction"}]},
        {"truncation": "auto"},
    ],
)
def test_a_prompt_of_which_the_model_reads_less_shares_no_truth_with_one_it_reads_whole(
    extra: dict[str, object],
) -> None:
    ledger, whole = Ledger(), request(START)
    edited = msgspec.structs.replace(whole, extra=extra)
    assert ledger.record(edited, Usage(hidden_count(edited) // 2), surely=True)
    assert ledger.estimate(edited).method == "actual"
    assert ledger.estimate(whole).method == "estimated"
    longer = request([*START, assistant("Done."), user("And now?")])
    assert ledger.estimate(longer).method == "estimated"
    # Options that change nothing of what is read cost no truth.
    routed = msgspec.structs.replace(edited, extra={**extra, "service_tier": "flex"})
    assert ledger.estimate(routed).method == "hybrid"


def test_a_prompt_that_was_counted_is_that_count() -> None:
    ledger = Ledger()
    truth = told(ledger, request(START, TOOLS))
    estimate = ledger.estimate(request(START, TOOLS))
    assert (estimate.tokens, estimate.method) == (truth, "actual")


def test_what_follows_a_counted_prompt_is_added_to_it() -> None:
    ledger = Ledger()
    truth = told(ledger, request(START))
    longer = request([*START, assistant("Certainly."), user("Thank you.")])
    estimate = ledger.estimate(longer)
    assert estimate.method == "hybrid"
    assert truth < estimate.tokens < truth + 40


def test_the_parts_of_a_sum_make_the_sum() -> None:
    ledger = Ledger()
    told(ledger, request(START, TOOLS))
    for asked in (request(START), request([*START, assistant("Yes."), user(PROSE)], TOOLS)):
        estimate = ledger.estimate(asked)
        assert sum(part.tokens for part in estimate.parts) == estimate.tokens


def test_a_conversation_that_is_known_is_within_one_percent() -> None:
    ledger = Ledger(without=frozenset({"mistral_spm"}))
    messages = grow(ledger, START, 6)
    assert error(ledger, request(messages)) < 0.01


def test_an_edit_in_the_middle_keeps_what_was_before_it() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    edited = [*messages[:6], user("No, something else: " + PROSE * 2)]
    assert ledger.estimate(request(edited)).method == "hybrid"
    assert error(ledger, request(edited)) < 0.025


def test_compaction_keeps_what_is_known_of_the_messages_left() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 8)
    compacted = [messages[0], user("Summary: " + PROSE * 4), *messages[-5:]]
    assert error(ledger, request(compacted)) < 0.025


def test_other_tools_change_the_tools_alone() -> None:
    ledger = Ledger()
    told(ledger, request(START))
    told(ledger, request(START, TOOLS))
    messages = grow(ledger, START, 3)
    assert ledger.estimate(request(messages, TOOLS)).method == "hybrid"
    assert error(ledger, request(messages, TOOLS)) < 0.03


def test_a_new_conversation_knows_the_tools_and_the_system_prompt_of_the_last() -> None:
    ledger = Ledger()
    told(ledger, request(START, TOOLS))
    new = request([START[0], user("Something else entirely.")], TOOLS)
    assert ledger.estimate(new).method == "estimated"
    assert error(ledger, new) < 0.03


def test_parallel_conversations_do_not_disturb_each_other() -> None:
    ledger = Ledger()
    one, other = list(START), [system("You write commit messages."), user(PROSE * 8)]
    for turn in range(4):
        for messages in (one, other):
            told(ledger, request(messages))
            messages += [assistant(f"{turn}"), user(PROSE)]
    assert error(ledger, request(one)) < 0.01
    assert error(ledger, request(other)) < 0.01


def test_another_model_has_its_own_ledger() -> None:
    ledger = Ledger()
    told(ledger, request(START))
    assert ledger.estimate(request(START, model="hidden/another")).method == "estimated"


def test_an_answer_is_known_by_its_output_tokens() -> None:
    ledger = Ledger()
    truth = told(ledger, request(START))
    said = "Ich weiß nicht, was soll es bedeuten, daß ich so traurig bin. " * 40
    assert ledger.record_answer(MODEL, [TextPart(said)], Usage(truth, hidden_text(said)))
    longer = request([*START, assistant(said)])
    assert ledger.estimate(longer).tokens == pytest.approx(truth + hidden_text(said), abs=10)
    assert ledger.message_tokens(MODEL, assistant(said)) == hidden_text(said)


def test_absurd_output_tokens_are_not_believed() -> None:
    assert not Ledger().record_answer(MODEL, [TextPart("Hi")], Usage(100, 90_000, reasoning_tokens=0))
    assert not Ledger().record_answer(MODEL, [TextPart(PROSE * 90)], Usage(100, 1))
    assert not Ledger().record_answer(MODEL, [TextPart(PROSE)], Usage(100, None))
    assert not Ledger().record_answer(MODEL, [], Usage(100, 10))


def test_reasoning_counts_in_a_tool_loop_and_is_gone_when_the_user_speaks() -> None:
    ledger = Ledger()
    first = told(ledger, request(START))
    call = ToolCallPart("call_1", "read_file", {"path": "a.py"})
    answer = (ThinkingPart("", metadata={"signature": "sealed"}), call)
    ledger.record_answer(MODEL, answer, Usage(first, 30 + 2000, reasoning_tokens=2000))
    loop = [*START, assistant(*answer), result("call_1", PROSE)]
    truth = first + 2000 + 60
    assert ledger.estimate(request(loop)).tokens == pytest.approx(truth, rel=0.06)
    assert ledger.record(request(loop), Usage(truth))
    spoken = [*loop, assistant("Done."), user("Thanks.")]
    after = ledger.estimate(request(spoken)).tokens
    assert after == pytest.approx(truth - 2000, abs=60)


def test_reasoning_that_is_not_reported_is_what_the_text_cannot_explain() -> None:
    ledger = Ledger()
    answer = (ThinkingPart("", metadata={"signature": "sealed"}), TextPart(PROSE))
    assert ledger.record_answer(MODEL, answer, Usage(100, 5000))
    with_thinking = ledger.message_tokens(MODEL, assistant(*answer))
    assert with_thinking == pytest.approx(5000, abs=50)
    assert ledger.message_tokens(MODEL, assistant(PROSE)) < 50


@pytest.mark.parametrize("usage", [Usage(), Usage(0, 0), Usage(1), Usage(90_000_000)])
def test_garbage_is_neither_recorded_nor_learned(usage: Usage) -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    before = ledger.estimate(request(messages))
    assert not ledger.record(request(messages), usage)
    assert ledger.estimate(request(messages)) == before


def test_a_model_that_changed_is_followed() -> None:
    ledger = Ledger()
    grow(ledger, START, 8)
    other = [system("Another prompt. " + PROSE * 30), user(PROSE)]
    believed = []
    for turn in range(12):
        asked = request(other)
        believed.append(ledger.record(asked, Usage(2 * hidden_count(asked))))
        other = [*other, assistant(f"{turn}. {PROSE}"), user(PROSE * 3)]
    assert not any(believed[:2])
    assert all(believed[2:])
    asked = request(other)
    assert ledger.estimate(asked).tokens == pytest.approx(2 * hidden_count(asked), rel=0.03)


def test_a_number_that_is_surely_about_this_prompt_is_not_doubted() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    assert ledger.record(request(messages), Usage(200_001), surely=True)
    assert ledger.estimate(request(messages)).tokens == 200_001
    longer = request([*messages, assistant("Hm."), user("Go on.")])
    assert 200_001 < ledger.estimate(longer).tokens < 200_100


def test_cached_tokens_left_out_of_the_input_are_put_back() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 4)
    truth = hidden_count(request(messages))
    assert ledger.record(request(messages), Usage(truth - 500, cached_tokens=500))
    assert ledger.estimate(request(messages)).tokens == truth


def test_confidence_is_the_share_of_hits() -> None:
    ledger = Ledger()
    for number in range(8):
        asked = request([*START, user(PROSE * number)])
        truth = ledger.estimate(asked).tokens
        wrong = number >= 6
        assert ledger.record(asked, Usage(round(truth * (1.3 if wrong else 1.0))))
    # Six hits and two misses, and one of each for modesty.
    assert ledger.estimate(request([user("New.")])).confidence == pytest.approx(7 / 10)


def test_what_would_have_been_estimated_without_learning_is_kept_for_comparison() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    before = Ledger().estimate(request(messages)).tokens
    truth = told(ledger, request(messages))
    (accuracy,) = ledger.accuracy()
    assert accuracy.requests == 7
    assert accuracy.plain_p95 >= abs(before - truth) / truth > accuracy.median


def test_images_and_files_are_priced() -> None:
    image = DataPart(bytes.fromhex("89504e470d0a1a0a0000000d49484452" + "00000400" * 2), "image/png")
    plain = request(START, model="openai/gpt-4o")
    pictured = request([*START[:1], Message(START[1].role, (*START[1].parts, image))], model="openai/gpt-4o")
    ledger = Ledger()
    shares = {part.label: part.tokens for part in ledger.estimate(pictured).parts}
    assert shares["images and files"] == 765
    assert ledger.estimate(pictured).tokens >= ledger.estimate(plain).tokens + 765


def test_everything_is_forgotten_on_request() -> None:
    ledger = Ledger()
    before = ledger.estimate(request(START))
    told(ledger, request(START))
    ledger.clear()
    assert ledger.estimate(request(START)) == before
    assert ledger.accuracy() == []


def test_an_empty_prompt_is_no_trouble() -> None:
    ledger = Ledger()
    assert ledger.estimate(request([])).tokens >= 0
    assert not ledger.record(request([]), Usage(10))


def test_any_value_can_be_the_input_of_a_call() -> None:
    ledger = Ledger()
    for strange in (None, "text", {"\ud83d": "\ud83d"}, [1, {2: 3}], object()):
        messages = [*START, assistant(ToolCallPart("c", "f", strange))]
        assert ledger.estimate(request(messages)).tokens > 0


def test_a_prompt_is_never_told_to_be_less_than_its_text() -> None:
    ledger = Ledger()
    text = "hello " * 50
    model = "anthropic/claude-sonnet-4.5"
    # A report that leaves less than nothing for what surrounds the text.
    assert ledger.record(
        request([user(text)], model=model), Usage(round(0.9 * ledger.text_tokens(model, text)))
    )
    asked = ledger.estimate(request([user("other")], model=model))
    assert asked.tokens >= ledger.text_tokens(model, "other") > 0
    assert all(part.tokens > 0 for part in asked.parts)
    assert sum(part.tokens for part in asked.parts) == asked.tokens


@pytest.mark.parametrize("number", [2**64, 10**25, -(2**63) - 1])
def test_a_number_of_any_size_in_a_schema_or_a_call_is_counted(number: int) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": number}}}
    messages = [user("Pay."), assistant(ToolCallPart("c1", "pay", {"wei": number})), result("c1", "Paid.")]
    asked = request(messages, [Tool("pay", "Pays.", schema)])
    ledger = Ledger()
    assert ledger.estimate(asked).tokens > 0
    assert ledger.record(asked, Usage(ledger.estimate(asked).tokens))
    assert ledger.estimate(asked).method == "actual"
