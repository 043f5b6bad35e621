"""The estimator an application holds."""

from __future__ import annotations

import logging
import sqlite3
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
    system,
    user,
)
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.protocols.errors import error_from
from tollbridge.storage.database import Database
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.messages import ChatRequest, DataPart, Message, Role, TextPart
from tollbridge.types.usage import Usage

MESSAGES = (system(PROSE * 10), user(PROSE))


def test_text_is_exact_where_the_vocabulary_is_bundled() -> None:
    estimator = HybridTokenEstimator()
    assert estimator.estimate_text("openai/gpt-5", "hello world") == 2
    assert estimator.estimate_text("openai/gpt-5", "hello world") == 2
    assert estimator.estimate_text("openai/gpt-5", "") == 0


def test_a_message_is_its_content_alone() -> None:
    estimator = HybridTokenEstimator()
    assert estimator.estimate_message("openai/gpt-5", user("hello world")) == 2


def test_a_conversation_is_estimated_then_known() -> None:
    estimator = HybridTokenEstimator()
    assert estimator.estimate_conversation(MODEL, MESSAGES, TOOLS).method == "estimated"
    truth = hidden_count(request(MESSAGES, TOOLS))
    assert estimator.calibrate(MODEL, MESSAGES, Usage(truth, 12), TOOLS)
    known = estimator.estimate_conversation(MODEL, MESSAGES, TOOLS)
    assert (known.tokens, known.method) == (truth, "actual")
    longer = (*MESSAGES, assistant("Yes."), user("Go on."))
    assert estimator.estimate_conversation(MODEL, longer, TOOLS).method == "hybrid"


def test_what_was_learned_reaches_texts_that_were_counted_before() -> None:
    estimator = HybridTokenEstimator()
    before = estimator.estimate_text(MODEL, PROSE * 30)
    messages = [system(PROSE * 10)]
    for number in range(10):
        messages = [*messages, user(f"{number} {PROSE * 4}")]
        estimator.calibrate(MODEL, messages, Usage(round(1.4 * hidden_count(request(messages)))))
    assert estimator.estimate_text(MODEL, PROSE * 30) > 1.1 * before


def test_an_answer_is_known_when_it_comes_back() -> None:
    estimator = HybridTokenEstimator()
    said = "Ich weiß nicht, was soll es bedeuten. " * 30
    usage = Usage(hidden_count(request(MESSAGES)), hidden_text(said), reasoning_tokens=0)
    estimator.calibrate(MODEL, MESSAGES, usage, answer=[TextPart(said)])
    assert estimator.estimate_message(MODEL, assistant(said)) == hidden_text(said)


def test_a_refusal_teaches() -> None:
    estimator = HybridTokenEstimator()
    asked = request(MESSAGES)
    assert estimator.refused(asked, ContextTooLong("too long", tokens=200_123, limit=200_000))
    assert estimator.estimate_request(asked).tokens == 200_123


def test_a_refusal_that_names_only_the_limit_is_a_lower_bound_and_no_measurement() -> None:
    estimator = HybridTokenEstimator()
    asked, text = request(MESSAGES), estimator.estimate_text(MODEL, PROSE)
    first = estimator.estimate_request(asked)
    assert estimator.refused(asked, ContextTooLong("too long", limit=8000))
    estimate = estimator.estimate_request(asked)
    assert (estimate.tokens, estimate.method) == (8001, "estimated")
    assert sum(part.tokens for part in estimate.parts) == 8001
    assert estimator.estimate_request(request((*MESSAGES, user("Go on.")))).tokens >= 8001
    # Nothing was measured: nothing is learned, and nothing is held against the estimates.
    assert estimator.accuracy() == []
    assert estimator.estimate_text(MODEL, PROSE) == text
    assert estimator.estimate_request(request((user("Another"), *MESSAGES))).tokens < 1.2 * first.tokens
    assert not estimator.refused(asked, ContextTooLong("too long"))
    assert not estimator.refused(asked, ContextTooLong("too long", limit=8000))
    # What is measured after all counts.
    truth = hidden_count(asked)
    assert estimator.calibrate_request(asked, Usage(truth))
    assert estimator.estimate_request(asked).tokens == truth


def test_a_limit_that_was_passed_only_with_the_answer_teaches_nothing_of_the_prompt() -> None:
    sentence = (
        "This model's maximum context length is 4096 tokens. However, you requested 9000 output tokens and "
        "your prompt contains at least 1 input tokens, for a total of at least 9001 tokens."
    )
    error = error_from({"error": {"message": sentence}}, status=400)
    assert isinstance(error, ContextTooLong)
    estimator = HybridTokenEstimator()
    assert not estimator.refused(request(MESSAGES), error)
    assert estimator.estimate_request(request(MESSAGES)).tokens < 4096


def test_a_count_that_was_asked_for_is_believed_where_it_can_be() -> None:
    estimator = HybridTokenEstimator()
    asked = request(MESSAGES, TOOLS)
    truth = hidden_count(asked)
    for nonsense in (-1, 0, 1, 100 * truth):
        assert not estimator.counted(asked, nonsense)
    assert estimator.estimate_request(asked).method == "estimated"
    assert estimator.counted(asked, truth)
    assert estimator.estimate_request(asked).tokens == truth


def test_a_count_is_not_a_request_whose_estimate_was_right() -> None:
    estimator = HybridTokenEstimator()
    asked = request(MESSAGES, TOOLS)
    estimator.counted(asked, hidden_count(asked))
    assert estimator.accuracy() == []
    estimator.calibrate_request(asked, Usage(hidden_count(asked)))
    (accuracy,) = estimator.accuracy()
    assert accuracy.requests == 1


@pytest.mark.parametrize(
    ("window", "verdict"),
    [(None, "unknown"), (0, "unknown"), (100_000, "fits"), (1050, "near"), (999, "over")],
)
def test_a_prompt_is_held_against_the_window(window: int | None, verdict: str) -> None:
    estimator = HybridTokenEstimator()
    asked = request(MESSAGES)
    estimator.refused(asked, ContextTooLong("too long", tokens=1000))
    preflight = estimator.preflight(asked, window)
    assert preflight.verdict == verdict
    assert (preflight.warning is not None) == (verdict in ("near", "over"))


def test_a_warning_says_how_much_and_of_what() -> None:
    estimator = HybridTokenEstimator()
    asked = request(MESSAGES)
    estimator.refused(asked, ContextTooLong("too long", tokens=190_000))
    near, over = (estimator.preflight(asked, window).warning for window in (200_000, 180_000))
    assert near == "The prompt is about 190,000 tokens, 95% of the 200,000 that fit."
    assert over == "The prompt is about 190,000 tokens, more than the 180,000 that fit."


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    first = HybridTokenEstimator(tmp_path / "store.db")
    truth = hidden_count(request(MESSAGES))
    first.calibrate(MODEL, MESSAGES, Usage(truth))
    text = first.estimate_text(MODEL, PROSE)
    first.close()
    second = HybridTokenEstimator(str(tmp_path / "store.db"))
    assert second.estimate_conversation(MODEL, MESSAGES).tokens == truth
    assert second.estimate_text(MODEL, PROSE) == text
    assert [accuracy.requests for accuracy in second.accuracy()] == [1]
    second.close()


def test_windows_learn_from_each_other(tmp_path: Path) -> None:
    one, other = (HybridTokenEstimator(tmp_path / "store.db") for _ in range(2))
    assert other.estimate_conversation(MODEL, MESSAGES).method == "estimated"
    one.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
    assert other.estimate_conversation(MODEL, MESSAGES).method == "actual"
    one.close()
    other.close()


def test_what_others_write_is_no_lesson_unless_it_changes_a_count(tmp_path: Path) -> None:
    one, other = (HybridTokenEstimator(tmp_path / "store.db") for _ in range(2))
    for model in (MODEL, "openai/gpt-5"):
        one.estimate_text(model, PROSE)
    asked = request(MESSAGES)
    one.estimate_request(asked)
    before = one.lesson
    tracker = Database(tmp_path / "store.db")
    tracker.run("INSERT INTO outcome (model, method, plain, estimate, actual) VALUES ('m', 'x', 1, 1, 1)")
    one.estimate_request(asked)
    assert one.lesson == before
    # An exact count stays exact, however much is learned of what surrounds it.
    exact = msgspec.structs.replace(asked, model="openai/gpt-5")
    other.calibrate_request(exact, Usage(one.estimate_request(exact).tokens + 3))
    one.calibrate_request(exact, Usage(one.estimate_request(exact).tokens + 3))
    one.estimate_request(asked)
    assert one.lesson == before
    other.calibrate_request(asked, Usage(hidden_count(asked)))
    one.estimate_request(asked)
    assert one.lesson > before
    for each in (one, other, tracker):
        each.close()


@pytest.mark.timed
def test_a_store_that_another_process_holds_costs_one_lesson_and_delays_no_estimate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollbridge.storage.database.PATIENCE", 0.3)
    estimator, asked = HybridTokenEstimator(tmp_path / "store.db"), request(MESSAGES)
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as threads, caplog.at_level(logging.WARNING):
        learning = threads.submit(estimator.calibrate_request, asked, Usage(hidden_count(asked)))
        while not learning.done():
            started = time.monotonic()
            assert estimator.estimate_request(asked).method == "estimated"
            assert time.monotonic() - started < 0.2
    assert "what this request taught is lost" in caplog.text
    holder.execute("ROLLBACK")
    holder.close()
    # The store is still there, for this process and the next.
    assert estimator.calibrate_request(asked, Usage(hidden_count(asked)))
    estimator.close()
    again = HybridTokenEstimator(tmp_path / "store.db")
    assert again.estimate_request(asked).method == "actual"
    again.close()


def test_a_reset_forgets_everything(tmp_path: Path) -> None:
    estimator = HybridTokenEstimator(tmp_path / "store.db")
    before = estimator.estimate_conversation(MODEL, MESSAGES)
    estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
    estimator.reset()
    assert estimator.estimate_conversation(MODEL, MESSAGES) == before
    assert estimator.accuracy() == []
    estimator.close()


def test_a_store_that_cannot_be_opened_costs_only_its_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store.db").mkdir()
    with caplog.at_level(logging.WARNING):
        estimator = HybridTokenEstimator(tmp_path / "store.db")
    assert "cannot be used" in caplog.text
    assert estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
    assert estimator.estimate_conversation(MODEL, MESSAGES).method == "actual"


def test_a_store_that_fails_later_does_not_fail_the_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    estimator = HybridTokenEstimator(tmp_path / "store.db")
    estimator.close()
    with caplog.at_level(logging.WARNING):
        assert estimator.estimate_conversation(MODEL, MESSAGES).tokens > 0
    assert "going on without it" in caplog.text
    assert estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))


def test_vocabularies_are_warmed_for_the_models_in_use() -> None:
    thread = HybridTokenEstimator().warm("anthropic/claude-sonnet-4.5", "openai/gpt-5")
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_threads_may_share_an_estimator(tmp_path: Path) -> None:
    estimator = HybridTokenEstimator(tmp_path / "store.db")
    asked = [request([user(f"Question {number}. {PROSE}")]) for number in range(40)]

    def ask(one: ChatRequest) -> bool:
        estimator.estimate_text(MODEL, PROSE * 2)
        return estimator.calibrate_request(one, Usage(hidden_count(one)))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, asked))
    assert {estimator.estimate_request(one).method for one in asked} == {"actual"}
    estimator.close()


def test_what_was_counted_is_not_held() -> None:
    """An editor sends its pictures anew with every turn: sixty turns of them would fill the memory."""
    estimator, before = HybridTokenEstimator(), 0
    tracemalloc.start()
    try:
        for turn in range(30):
            picture = DataPart(bytes(2_000_000), "image/png")
            asked = request([Message(Role.USER, (picture, TextPart(f"turn {turn}")))])
            estimator.estimate_request(asked)
            estimator.calibrate_request(asked, Usage(1_000))
            before = before or tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - before < 4_000_000
    finally:
        tracemalloc.stop()
