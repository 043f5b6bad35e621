"""The ledger: exact for measured prompts, close for all others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.tokens.samples import (
    MODEL,
    PROSE,
    TOOLS,
    assistant,
    hidden_count,
    hidden_text,
    request,
    result,
    system,
    text_tokens,
    unfamiliar_table,
    user,
)
from tollbridge.tokens.ledger import Ledger
from tollbridge.tokens.prompts import answer_fingerprint
from tollbridge.tokens.records import MemoryStore
from tollbridge.types.events import Usage
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
)

START = (system(PROSE * 20), user(PROSE * 3))


def record(ledger: Ledger, chat_request: ChatRequest) -> int:
    """Record what the provider reports for a request, and return it."""
    truth = hidden_count(chat_request)
    assert ledger.record(chat_request, Usage(truth))
    return truth


def grow(ledger: Ledger, messages: Sequence[Message], turns: int) -> list[Message]:
    """Continue a conversation by some turns, and record each."""
    for turn in range(turns):
        record(ledger, request(messages))
        messages = [
            *messages,
            assistant(f"Answer {turn}: {PROSE * (turn % 3 + 1)}"),
            user(f"def step_{turn}(x):\n    return x + {turn}\n" * 4),
        ]
    return list(messages)


def error(ledger: Ledger, chat_request: ChatRequest) -> float:
    truth = hidden_count(chat_request)
    return abs(ledger.estimate(chat_request).tokens - truth) / truth


def test_an_unknown_prompt_is_estimated() -> None:
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
def test_measurements_are_not_shared_between_edited_and_complete_prompts(
    extra: dict[str, object],
) -> None:
    ledger, complete = Ledger(), request(START)
    edited = msgspec.structs.replace(complete, extra=extra)
    assert ledger.record(edited, Usage(hidden_count(edited) // 2), trusted=True)
    assert ledger.estimate(edited).method == "actual"
    assert ledger.estimate(complete).method == "estimated"
    longer = request([*START, assistant("Done."), user("And now?")])
    assert ledger.estimate(longer).method == "estimated"
    # Options that do not affect what the model reads keep the measurement.
    routed = msgspec.structs.replace(edited, extra={**extra, "service_tier": "flex"})
    assert ledger.estimate(routed).method == "actual"


def test_a_measured_prompt_has_the_reported_count() -> None:
    ledger = Ledger()
    truth = record(ledger, request(START, TOOLS))
    estimate = ledger.estimate(request(START, TOOLS))
    assert (estimate.tokens, estimate.method) == (truth, "actual")


def test_messages_after_a_measured_prompt_are_added_to_its_count() -> None:
    ledger = Ledger()
    truth = record(ledger, request(START))
    longer = request([*START, assistant("Certainly."), user("Thank you.")])
    estimate = ledger.estimate(longer)
    assert estimate.method == "hybrid"
    assert truth < estimate.tokens < truth + 40


def test_the_parts_of_an_estimate_add_up_to_it() -> None:
    ledger = Ledger()
    record(ledger, request(START, TOOLS))
    for chat_request in (request(START), request([*START, assistant("Yes."), user(PROSE)], TOOLS)):
        estimate = ledger.estimate(chat_request)
        assert sum(part.tokens for part in estimate.parts) == estimate.tokens


def test_the_estimate_of_a_known_conversation_is_within_one_percent() -> None:
    ledger = Ledger(table=unfamiliar_table())
    messages = grow(ledger, START, 6)
    assert error(ledger, request(messages)) < 0.01


def test_after_an_edit_the_measured_prefix_is_still_used() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    edited = [*messages[:6], user("No, something else: " + PROSE * 2)]
    assert ledger.estimate(request(edited)).method == "hybrid"
    assert error(ledger, request(edited)) < 0.025


def test_after_a_compaction_the_measured_messages_are_still_used() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 8)
    compacted = [messages[0], user("Summary: " + PROSE * 4), *messages[-5:]]
    assert error(ledger, request(compacted)) < 0.025


def test_changing_the_tools_keeps_the_measured_prefix() -> None:
    ledger = Ledger()
    record(ledger, request(START))
    record(ledger, request(START, TOOLS))
    messages = grow(ledger, START, 3)
    assert ledger.estimate(request(messages, TOOLS)).method == "hybrid"
    assert error(ledger, request(messages, TOOLS)) < 0.03


def test_a_new_conversation_uses_the_measured_tools_and_system_prompt() -> None:
    ledger = Ledger()
    record(ledger, request(START, TOOLS))
    new = request([START[0], user("Something else entirely.")], TOOLS)
    assert ledger.estimate(new).method == "estimated"
    assert error(ledger, new) < 0.03


def test_parallel_conversations_do_not_affect_each_other() -> None:
    ledger = Ledger()
    one, other = list(START), [system("You write commit messages."), user(PROSE * 8)]
    for turn in range(4):
        for messages in (one, other):
            record(ledger, request(messages))
            messages += [assistant(f"{turn}"), user(PROSE)]
    assert error(ledger, request(one)) < 0.01
    assert error(ledger, request(other)) < 0.01


def test_measurements_are_not_shared_between_models() -> None:
    ledger = Ledger()
    record(ledger, request(START))
    assert ledger.estimate(request(START, model="hidden/another")).method == "estimated"


def test_an_answer_in_the_history_has_its_reported_output_tokens() -> None:
    ledger = Ledger()
    truth = hidden_count(request(START))
    text = "Ich weiß nicht, was soll es bedeuten, daß ich so traurig bin. " * 40
    assert ledger.record(request(START), Usage(truth, hidden_text(text)), answer=[TextPart(text)])
    longer = request([*START, assistant(text)])
    assert ledger.estimate(longer).tokens == pytest.approx(truth + hidden_text(text), abs=10)
    assert ledger.message_tokens(MODEL, assistant(text)) == hidden_text(text)


def test_implausible_output_tokens_are_rejected() -> None:
    truth = hidden_count(request(START))

    def is_measured(answer: Sequence[Part], usage: Usage) -> bool:
        store = MemoryStore()
        assert Ledger(store).record(request(START), usage, answer=answer)
        return bool(store.measured([answer_fingerprint(MODEL, answer)]))

    assert is_measured([TextPart(PROSE)], Usage(truth, hidden_text(PROSE)))
    assert not is_measured([TextPart("Hi")], Usage(truth, 90_000, reasoning_tokens=0))
    assert not is_measured([TextPart(PROSE * 90)], Usage(truth, 1))
    assert not is_measured([TextPart(PROSE)], Usage(truth, None))
    assert not is_measured([], Usage(truth, 10))


def test_reasoning_counts_in_a_tool_loop_and_not_after_the_next_user_message() -> None:
    ledger = Ledger()
    first = hidden_count(request(START))
    call = ToolCallPart("call_1", "read_file", {"path": "a.py"})
    answer = (ThinkingPart("", metadata={"signature": "sealed"}), call)
    assert ledger.record(request(START), Usage(first, 30 + 2000, reasoning_tokens=2000), answer=answer)
    loop = [*START, assistant(*answer), result("call_1", PROSE)]
    truth = first + 2000 + 60
    assert ledger.estimate(request(loop)).tokens == pytest.approx(truth, rel=0.06)
    assert ledger.record(request(loop), Usage(truth))
    continued = [*loop, assistant("Done."), user("Thanks.")]
    after = ledger.estimate(request(continued)).tokens
    assert after == pytest.approx(truth - 2000, abs=60)


def test_unreported_reasoning_is_inferred_from_the_output_tokens() -> None:
    ledger = Ledger()
    call = ToolCallPart("call_1", "read_file", {"path": "a.py"})
    answer = (ThinkingPart("", metadata={"signature": "sealed"}), TextPart(PROSE), call)
    truth = hidden_count(request(START))
    assert ledger.record(request(START), Usage(truth, 5000), answer=answer)
    with_thinking = ledger.message_tokens(MODEL, assistant(*answer))
    assert with_thinking == pytest.approx(5000, abs=50)
    assert ledger.message_tokens(MODEL, assistant(PROSE, call)) < 50


def test_a_message_without_tool_calls_counts_without_its_reasoning() -> None:
    """The user is the next to speak, and providers drop reasoning before the last user message."""
    ledger = Ledger()
    thinking = ThinkingPart(PROSE * 50, metadata={"signature": "sealed"})
    assert ledger.message_tokens(MODEL, assistant(thinking, PROSE)) == ledger.message_tokens(
        MODEL, assistant(PROSE)
    )
    call = ToolCallPart("call_1", "read_file", {"path": "a.py"})
    assert ledger.message_tokens(MODEL, assistant(thinking, call)) > 400


def test_past_reasoning_counts_if_the_provider_is_seen_to_count_it() -> None:
    ledger, messages = Ledger(), [system(PROSE * 60), user(PROSE * 5)]
    for turn in range(8):
        thinking = ThinkingPart(f"{turn} {PROSE * 40}", metadata={"signature": f"sealed {turn}"})
        messages += [assistant(thinking, f"Answer {turn}. {PROSE}"), user(f"Question {turn}. {PROSE}")]
        past = sum(
            hidden_text(part.text)
            for message in messages
            for part in message.parts
            if isinstance(part, ThinkingPart)
        )
        assert ledger.record(request(messages), Usage(hidden_count(request(messages)) + past))
    counted = ledger.message_tokens(MODEL, assistant(ThinkingPart(PROSE * 40), PROSE))
    assert counted == pytest.approx(hidden_text(PROSE * 41), rel=0.1)


@pytest.mark.parametrize("usage", [Usage(), Usage(0, 0), Usage(1), Usage(90_000_000)])
def test_implausible_usage_is_neither_recorded_nor_learned(usage: Usage) -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    before = ledger.estimate(request(messages))
    assert not ledger.record(request(messages), usage)
    assert ledger.estimate(request(messages)) == before


def test_a_model_that_changed_its_tokenizer_is_learned_again() -> None:
    ledger = Ledger()
    grow(ledger, START, 8)
    other = [system("Another prompt. " + PROSE * 30), user(PROSE)]
    accepted = []
    for turn in range(12):
        chat_request = request(other)
        accepted.append(ledger.record(chat_request, Usage(2 * hidden_count(chat_request))))
        other = [*other, assistant(f"{turn}. {PROSE}"), user(PROSE * 3)]
    assert not any(accepted[:2])
    assert all(accepted[2:])
    chat_request = request(other)
    assert ledger.estimate(chat_request).tokens == pytest.approx(2 * hidden_count(chat_request), rel=0.03)


def test_a_trusted_report_is_always_accepted() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    assert ledger.record(request(messages), Usage(200_001), trusted=True)
    assert ledger.estimate(request(messages)).tokens == 200_001
    longer = request([*messages, assistant("Hm."), user("Go on.")])
    assert 200_001 < ledger.estimate(longer).tokens < 200_100


def test_cached_tokens_excluded_from_the_input_are_added() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 4)
    truth = hidden_count(request(messages))
    assert ledger.record(request(messages), Usage(truth - 500, cached_tokens=500))
    assert ledger.estimate(request(messages)).tokens == truth


def test_a_wrong_share_of_a_tool_set_is_corrected_at_every_opening() -> None:
    ledger = Ledger()

    def opening(number: int) -> ChatRequest:
        return request([system(f"Part {number}. " + PROSE * 5), user(f"{number}: " + PROSE)], TOOLS)

    # The first prompt was cheaper than the others, for a reason that the text does not show.
    first = opening(0)
    assert ledger.record(first, Usage(round(0.9 * hidden_count(first))))
    for number in range(1, 9):
        record(ledger, opening(number))
    assert error(ledger, opening(9)) < 0.015


@pytest.mark.parametrize("cached", [1.0, 0.95, 0.5])
def test_a_gateway_that_does_not_report_cache_reads_does_not_lower_the_estimate(cached: float) -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    previous = hidden_count(request(messages[:-2]))
    for turn in range(8):
        chat_request = request(messages)
        assert not ledger.record(chat_request, Usage(hidden_count(chat_request) - round(cached * previous)))
        previous = hidden_count(chat_request)
        messages = [*messages, assistant(f"{turn}. {PROSE}"), user(PROSE * (turn + 2))]
    assert error(ledger, request(messages)) < 0.03
    (accuracy,) = ledger.accuracy()
    assert sum(accuracy.refused.values()) == 8


def test_without_cache_writes_the_previous_prompt_is_learned() -> None:
    ledger, messages, previous = Ledger(), list(START), 0
    for turn in range(12):
        chat_request = request(messages)
        ledger.record(chat_request, Usage(previous + 5, cached_tokens=previous))
        previous = hidden_count(chat_request)
        messages = [*messages, assistant(f"{turn}. {PROSE * 4}"), user(PROSE * 6)]
    assert error(ledger, request(messages)) < 0.03


def test_old_tool_results_that_the_server_clears_are_no_new_truth() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 8)
    before = text_tokens(ledger, MODEL, PROSE * 20)
    cleared = hidden_count(request(messages)) // 3

    def edited() -> ChatRequest:
        return msgspec.structs.replace(request(messages), extra={"context_management": {"edits": []}})

    record(ledger, edited())
    for turn in range(5):
        messages = [*messages, assistant(f"{turn}. {PROSE}"), user(PROSE * 3)]
        ledger.record(edited(), Usage(hidden_count(edited()) - cleared))
    # The prompts of this conversation are shorter, and the text is not.
    assert ledger.estimate(edited()).tokens == hidden_count(edited()) - cleared
    assert text_tokens(ledger, MODEL, PROSE * 20) == pytest.approx(before, rel=0.02)


def test_a_prompt_cut_by_the_server_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 8)
    limit = hidden_count(request(messages)) // 2
    for turn in range(5):
        messages = [*messages, assistant(f"{turn}. {PROSE}"), user(PROSE * 3)]
        assert not ledger.record(request(messages), Usage(limit))
    (accuracy,) = ledger.accuracy()
    assert accuracy.refused["cut by the server"] >= 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"read only {limit}" in caplog.text


def test_the_largest_estimate_of_several_providers_counts() -> None:
    ledger = Ledger()
    small, large = request(START), 1.2

    for number in range(6):
        chat_request = request([*START, user(f"{number} " + PROSE * 5)])
        truth = hidden_count(chat_request)
        assert ledger.record(chat_request, Usage(truth), provider="cheap")
        assert ledger.record(chat_request, Usage(round(large * truth)), provider="verbose")
    truth = hidden_count(small)
    assert ledger.predict(small, "cheap").tokens == pytest.approx(truth, rel=0.02)
    assert ledger.predict(small, "verbose").tokens == pytest.approx(large * truth, rel=0.02)
    assert ledger.estimate(small).tokens >= 0.98 * large * truth


def test_a_report_without_a_provider_belongs_to_the_latest_one() -> None:
    ledger, chat_request = Ledger(), request(START)
    assert ledger.record(chat_request, Usage(hidden_count(chat_request)), provider="cheap")
    longer = request([*START, user(PROSE)])
    truth = record(ledger, longer)
    assert (ledger.estimate(longer).tokens, ledger.estimate(longer).method) == (truth, "actual")
    longest = request([*longer.messages, assistant("Yes."), user(PROSE)])
    assert ledger.record_count(longest, hidden_count(longest))
    assert ledger.estimate(longest).method == "actual"
    ledger.record_lower_bound(longest, 200_000)
    assert ledger.estimate(request([*longest.messages, user("More.")])).tokens == 200_000


def test_an_option_that_differs_in_every_request_does_not_affect_the_measurement() -> None:
    ledger = Ledger()
    first = msgspec.structs.replace(request(START, TOOLS), extra={"metadata": {"id": "1"}, "user": "a"})
    second = msgspec.structs.replace(first, extra={"metadata": {"id": "2"}, "user": "b"})
    truth = record(ledger, first)
    assert ledger.estimate(second).tokens == truth
    instructed = msgspec.structs.replace(first, extra={"instructions": PROSE})
    assert ledger.estimate(instructed).method != "actual"


def test_confidence_is_the_share_of_hits() -> None:
    ledger = Ledger()
    for number in range(8):
        chat_request = request([*START, user(PROSE * number)])
        truth = ledger.estimate(chat_request).tokens
        wrong = number >= 6
        assert ledger.record(chat_request, Usage(round(truth * (1.3 if wrong else 1.0))))
    # Six hits and two misses, and one of each by Laplace smoothing.
    assert ledger.estimate(request([user("New.")])).confidence == pytest.approx(7 / 10)


def test_the_estimate_without_learning_is_recorded_for_comparison() -> None:
    ledger = Ledger()
    messages = grow(ledger, START, 6)
    before = Ledger().estimate(request(messages)).tokens
    truth = record(ledger, request(messages))
    (accuracy,) = ledger.accuracy()
    assert accuracy.requests == 7
    assert accuracy.plain_p95 >= abs(before - truth) / truth > accuracy.median


def test_images_and_files_are_counted() -> None:
    image = DataPart(bytes.fromhex("89504e470d0a1a0a0000000d49484452" + "00000400" * 2), "image/png")
    plain = request(START, model="openai/gpt-4o")
    with_image = request(
        [*START[:1], Message(START[1].role, (*START[1].parts, image))], model="openai/gpt-4o"
    )
    ledger = Ledger()
    shares = {part.label: part.tokens for part in ledger.estimate(with_image).parts}
    assert shares["images and files"] == 765
    assert ledger.estimate(with_image).tokens >= ledger.estimate(plain).tokens + 765


def test_the_stated_deviation_follows_the_errors_and_is_shared_through_the_store() -> None:
    store = MemoryStore()
    ledger = Ledger(store)
    messages = grow(ledger, [system(PROSE * 20)], 40)
    chat_request = request([*messages, user(PROSE * 30)], TOOLS)
    estimate = ledger.predict(chat_request)
    assert estimate.deviation < 0.7 * estimate.unscaled_deviation  # the reports were closer than expected
    assert Ledger(store).predict(chat_request).deviation == estimate.deviation
    ledger.clear()
    blank = ledger.predict(chat_request)
    assert blank.deviation == blank.unscaled_deviation


def test_the_margin_does_not_shrink_with_the_stated_deviation() -> None:
    estimate = Ledger().predict(request([user(PROSE * 300)]))
    certain = msgspec.structs.replace(estimate, error_scale=0.1)
    assert certain.deviation < estimate.deviation / 3
    assert certain.margin == estimate.margin > 0
    assert certain.total == estimate.total


def test_clear_forgets_everything() -> None:
    ledger = Ledger()
    before = ledger.estimate(request(START))
    record(ledger, request(START))
    ledger.clear()
    assert ledger.estimate(request(START)) == before
    assert ledger.accuracy() == []


def test_an_empty_prompt_can_be_estimated_and_is_not_recorded() -> None:
    ledger = Ledger()
    assert ledger.estimate(request([])).tokens >= 0
    assert not ledger.record(request([]), Usage(10))


def test_any_value_can_be_the_input_of_a_tool_call() -> None:
    ledger = Ledger()
    for strange in (None, "text", {"\ud83d": "\ud83d"}, [1, {2: 3}], object()):
        messages = [*START, assistant(ToolCallPart("c", "f", strange))]
        assert ledger.estimate(request(messages)).tokens > 0


def test_an_estimate_is_never_less_than_the_tokens_of_its_text() -> None:
    ledger = Ledger()
    text = "hello " * 50
    model = "anthropic/claude-sonnet-4.5"
    # With this report the overhead would be negative.
    assert ledger.record(
        request([user(text)], model=model), Usage(round(0.9 * text_tokens(ledger, model, text)))
    )
    estimate = ledger.estimate(request([user("other")], model=model))
    assert estimate.tokens >= text_tokens(ledger, model, "other") > 0
    assert all(part.tokens > 0 for part in estimate.parts)
    assert sum(part.tokens for part in estimate.parts) == estimate.tokens


@pytest.mark.parametrize("number", [2**64, 10**25, -(2**63) - 1])
def test_numbers_of_any_size_in_a_schema_or_a_call_are_counted(number: int) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": number}}}
    messages = [user("Pay."), assistant(ToolCallPart("c1", "pay", {"wei": number})), result("c1", "Paid.")]
    chat_request = request(messages, [Tool("pay", "Pays.", schema)])
    ledger = Ledger()
    assert ledger.estimate(chat_request).tokens > 0
    assert ledger.record(chat_request, Usage(ledger.estimate(chat_request).tokens))
    assert ledger.estimate(chat_request).method == "actual"
