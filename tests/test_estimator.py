"""The token estimator of the public API."""

from __future__ import annotations

import logging
import sqlite3
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.storage.locking import locked
from tests.tokens.samples import (
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
from tollbridge.types.events import Usage
from tollbridge.types.messages import ChatRequest, DataPart, Message, Role, TextPart

MESSAGES = (system(PROSE * 10), user(PROSE))


def test_text_is_counted_exactly_if_the_vocabulary_is_bundled() -> None:
    estimator = HybridTokenEstimator()
    assert estimator.estimate_text("openai/gpt-5", "hello world") == 2
    assert estimator.estimate_text("openai/gpt-5", "hello world") == 2
    assert estimator.estimate_text("openai/gpt-5", "") == 0


def test_a_message_is_counted_without_overhead() -> None:
    estimator = HybridTokenEstimator()
    assert estimator.estimate_message("openai/gpt-5", user("hello world")) == 2


def test_a_conversation_is_estimated_and_exact_after_calibration() -> None:
    estimator = HybridTokenEstimator()
    assert estimator.estimate_conversation(MODEL, MESSAGES, TOOLS).method == "estimated"
    truth = hidden_count(request(MESSAGES, TOOLS))
    assert estimator.calibrate(MODEL, MESSAGES, Usage(truth, 12), TOOLS)
    known = estimator.estimate_conversation(MODEL, MESSAGES, TOOLS)
    assert (known.tokens, known.method) == (truth, "actual")
    longer = (*MESSAGES, assistant("Yes."), user("Go on."))
    assert estimator.estimate_conversation(MODEL, longer, TOOLS).method == "hybrid"


def test_learning_changes_the_counts_of_cached_texts() -> None:
    estimator = HybridTokenEstimator()
    before = estimator.estimate_text(MODEL, PROSE * 30)
    messages = [system(PROSE * 10)]
    for number in range(10):
        messages = [*messages, user(f"{number} {PROSE * 4}")]
        estimator.calibrate(MODEL, messages, Usage(round(1.4 * hidden_count(request(messages)))))
    assert estimator.estimate_text(MODEL, PROSE * 30) > 1.1 * before


def test_an_answer_in_the_history_has_its_reported_tokens() -> None:
    estimator = HybridTokenEstimator()
    text = "Ich weiß nicht, was soll es bedeuten. " * 30
    usage = Usage(hidden_count(request(MESSAGES)), hidden_text(text), reasoning_tokens=0)
    estimator.calibrate(MODEL, MESSAGES, usage, answer=[TextPart(text)])
    assert estimator.estimate_message(MODEL, assistant(text)) == hidden_text(text)


def test_a_context_length_error_calibrates() -> None:
    estimator = HybridTokenEstimator()
    chat_request = request(MESSAGES)
    assert estimator.refused(chat_request, ContextTooLong("too long", tokens=200_123, limit=200_000))
    assert estimator.estimate_request(chat_request).tokens == 200_123


def test_a_context_length_error_with_only_the_limit_gives_a_lower_bound() -> None:
    estimator = HybridTokenEstimator()
    chat_request, text = request(MESSAGES), estimator.estimate_text(MODEL, PROSE)
    first = estimator.estimate_request(chat_request)
    assert estimator.refused(chat_request, ContextTooLong("too long", limit=8000))
    estimate = estimator.estimate_request(chat_request)
    assert (estimate.tokens, estimate.method) == (8001, "estimated")
    assert sum(part.tokens for part in estimate.parts) == 8001
    assert estimator.estimate_request(request((*MESSAGES, user("Go on.")))).tokens >= 8001
    # Nothing was measured, so nothing is learned and the accuracy is unchanged.
    assert estimator.accuracy() == []
    assert estimator.estimate_text(MODEL, PROSE) == text
    assert estimator.estimate_request(request((user("Another"), *MESSAGES))).tokens < 1.2 * first.tokens
    assert not estimator.refused(chat_request, ContextTooLong("too long"))
    assert not estimator.refused(chat_request, ContextTooLong("too long", limit=8000))
    # A later measurement replaces the lower bound.
    truth = hidden_count(chat_request)
    assert estimator.calibrate_request(chat_request, Usage(truth))
    assert estimator.estimate_request(chat_request).tokens == truth


def test_a_limit_exceeded_only_by_the_output_is_not_learned() -> None:
    sentence = (
        "This model's maximum context length is 4096 tokens. However, you requested 9000 output tokens and "
        "your prompt contains at least 1 input tokens, for a total of at least 9001 tokens."
    )
    error = error_from({"error": {"message": sentence}}, status=400)
    assert isinstance(error, ContextTooLong)
    estimator = HybridTokenEstimator()
    assert not estimator.refused(request(MESSAGES), error)
    assert estimator.estimate_request(request(MESSAGES)).tokens < 4096


def test_a_token_count_response_is_accepted_if_it_is_plausible() -> None:
    estimator = HybridTokenEstimator()
    chat_request = request(MESSAGES, TOOLS)
    truth = hidden_count(chat_request)
    for nonsense in (-1, 0, 1, 100 * truth):
        assert not estimator.counted(chat_request, nonsense)
    assert estimator.estimate_request(chat_request).method == "estimated"
    assert estimator.counted(chat_request, truth)
    assert estimator.estimate_request(chat_request).tokens == truth


def test_a_token_count_response_does_not_affect_the_accuracy() -> None:
    estimator = HybridTokenEstimator()
    chat_request = request(MESSAGES, TOOLS)
    estimator.counted(chat_request, hidden_count(chat_request))
    assert estimator.accuracy() == []
    estimator.calibrate_request(chat_request, Usage(hidden_count(chat_request)))
    (accuracy,) = estimator.accuracy()
    assert accuracy.requests == 1


@pytest.mark.parametrize(
    ("window", "verdict"),
    [(None, "unknown"), (0, "unknown"), (100_000, "fits"), (1050, "near"), (999, "over")],
)
def test_preflight_compares_the_prompt_with_the_window(window: int | None, verdict: str) -> None:
    estimator = HybridTokenEstimator()
    chat_request = request(MESSAGES)
    estimator.refused(chat_request, ContextTooLong("too long", tokens=1000))
    preflight = estimator.preflight(chat_request, window)
    assert preflight.verdict == verdict
    assert (preflight.warning is not None) == (verdict in ("near", "over"))


def test_the_warning_has_the_tokens_and_the_limit() -> None:
    estimator = HybridTokenEstimator()
    chat_request = request(MESSAGES)
    estimator.refused(chat_request, ContextTooLong("too long", tokens=190_000))
    near, over = (estimator.preflight(chat_request, window).warning for window in (200_000, 180_000))
    assert near == "The prompt uses about 190,000 of 200,000 tokens (95 %)."
    assert over == "The prompt uses about 190,000 tokens, more than the limit of 180,000."


def test_calibration_survives_a_restart(tmp_path: Path) -> None:
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


def test_estimators_with_the_same_file_share_what_they_learn(tmp_path: Path) -> None:
    one, other = (HybridTokenEstimator(tmp_path / "store.db") for _ in range(2))
    assert other.estimate_conversation(MODEL, MESSAGES).method == "estimated"
    one.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
    assert other.estimate_conversation(MODEL, MESSAGES).method == "actual"
    one.close()
    other.close()


def test_the_revision_changes_only_when_counts_change(tmp_path: Path) -> None:
    one, other = (HybridTokenEstimator(tmp_path / "store.db") for _ in range(2))
    for model in (MODEL, "openai/gpt-5"):
        one.estimate_text(model, PROSE)
    chat_request = request(MESSAGES)
    one.estimate_request(chat_request)
    before = one.revision
    tracker = Database(tmp_path / "store.db")
    tracker.execute("INSERT INTO outcome (model, method, plain, estimate, actual) VALUES ('m', 'x', 1, 1, 1)")
    one.estimate_request(chat_request)
    assert one.revision == before
    # Learning overheads does not change exact counts.
    exact = msgspec.structs.replace(chat_request, model="openai/gpt-5")
    other.calibrate_request(exact, Usage(one.estimate_request(exact).tokens + 3))
    one.calibrate_request(exact, Usage(one.estimate_request(exact).tokens + 3))
    one.estimate_request(chat_request)
    assert one.revision == before
    other.calibrate_request(chat_request, Usage(hidden_count(chat_request)))
    one.estimate_request(chat_request)
    assert one.revision > before
    for closable in (one, other, tracker):
        closable.close()


@pytest.mark.timed
def test_a_locked_database_loses_one_calibration_and_delays_no_estimate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollbridge.storage.database.BUSY_TIMEOUT", 0.3)
    estimator, chat_request = HybridTokenEstimator(tmp_path / "store.db"), request(MESSAGES)
    lock = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as threads, caplog.at_level(logging.WARNING):
        learning = threads.submit(
            estimator.calibrate_request, chat_request, Usage(hidden_count(chat_request))
        )
        while not learning.done():
            started = time.monotonic()
            assert estimator.estimate_request(chat_request).method == "estimated"
            assert time.monotonic() - started < 0.2
    assert "calibration from this request was not saved" in caplog.text
    lock.execute("ROLLBACK")
    lock.close()
    # The database is still usable, for this process and the next.
    assert estimator.calibrate_request(chat_request, Usage(hidden_count(chat_request)))
    estimator.close()
    again = HybridTokenEstimator(tmp_path / "store.db")
    assert again.estimate_request(chat_request).method == "actual"
    again.close()


@pytest.mark.parametrize("name", ["timeout", "patience"])
def test_the_timeout_of_writes_can_be_set_under_both_names(tmp_path: Path, name: str) -> None:
    estimator, chat_request = HybridTokenEstimator(tmp_path / "store.db", **{name: 0.0}), request(MESSAGES)
    started = time.monotonic()
    with locked(tmp_path / "store.db"):
        estimator.calibrate_request(chat_request, Usage(hidden_count(chat_request)))
    assert time.monotonic() - started < 5  # the default is 10 seconds
    estimator.close()


def test_lesson_is_the_old_name_of_revision() -> None:
    estimator = HybridTokenEstimator()
    for number in range(4):
        estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES)) + number))
        assert estimator.lesson == estimator.revision


def test_reset_forgets_everything(tmp_path: Path) -> None:
    estimator = HybridTokenEstimator(tmp_path / "store.db")
    before = estimator.estimate_conversation(MODEL, MESSAGES)
    estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
    estimator.reset()
    assert estimator.estimate_conversation(MODEL, MESSAGES) == before
    assert estimator.accuracy() == []
    estimator.close()


def test_without_a_usable_database_calibration_is_kept_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store.db").mkdir()
    with caplog.at_level(logging.WARNING):
        estimator = HybridTokenEstimator(tmp_path / "store.db")
    assert "Cannot use the database" in caplog.text
    assert estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
    assert estimator.estimate_conversation(MODEL, MESSAGES).method == "actual"


def test_a_database_that_fails_later_raises_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    estimator = HybridTokenEstimator(tmp_path / "store.db")
    estimator.close()
    with caplog.at_level(logging.WARNING):
        assert estimator.estimate_conversation(MODEL, MESSAGES).tokens > 0
    assert "continuing without saved calibration" in caplog.text
    assert estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))


def test_a_database_that_recovers_is_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr("tollbridge.estimator._RETRY_SECONDS", 0.0)
    estimator = HybridTokenEstimator(tmp_path / "store.db")
    usage = Usage(hidden_count(request(MESSAGES)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with caplog.at_level(logging.WARNING):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file can grow: as on a full disk
        try:
            for _ in range(3):
                estimator.calibrate(MODEL, MESSAGES, usage)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caplog.text.count("continuing without saved calibration") == 1
    assert estimator.calibrate(MODEL, MESSAGES, usage)
    estimator.close()
    again = HybridTokenEstimator(tmp_path / "store.db")
    assert again.estimate_conversation(MODEL, MESSAGES).method == "actual"
    again.close()


def test_warm_loads_the_vocabularies_of_models() -> None:
    thread = HybridTokenEstimator().warm("anthropic/claude-sonnet-4.5", "openai/gpt-5")
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_threads_can_share_an_estimator(tmp_path: Path) -> None:
    estimator = HybridTokenEstimator(tmp_path / "store.db")
    chat_requests = [request([user(f"Question {number}. {PROSE}")]) for number in range(40)]

    def calibrate(item: ChatRequest) -> bool:
        estimator.estimate_text(MODEL, PROSE * 2)
        return estimator.calibrate_request(item, Usage(hidden_count(item)))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(calibrate, chat_requests))
    assert {estimator.estimate_request(item).method for item in chat_requests} == {"actual"}
    estimator.close()


def test_counted_content_is_not_kept_in_memory() -> None:
    """An editor sends its images again with every turn: keeping them would fill the memory."""
    estimator, before = HybridTokenEstimator(), 0
    tracemalloc.start()
    try:
        for turn in range(30):
            picture = DataPart(bytes(2_000_000), "image/png")
            chat_request = request([Message(Role.USER, (picture, TextPart(f"turn {turn}")))])
            estimator.estimate_request(chat_request)
            estimator.calibrate_request(chat_request, Usage(1_000))
            before = before or tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - before < 4_000_000
    finally:
        tracemalloc.stop()


def test_the_name_of_a_provider_can_be_any_text(tmp_path: Path) -> None:
    chat_request = ChatRequest(
        model="hidden/model", messages=(Message(Role.USER, (TextPart("Hello. " * 50),)),)
    )
    with closing(HybridTokenEstimator(tmp_path / "store.db")) as estimator:
        tokens = estimator.estimate_request(chat_request).tokens + 1
        for provider in ("a\nb", "\ud800", "x" * 100_000, ""):
            assert estimator.calibrate_request(chat_request, Usage(tokens), provider=provider)
        assert estimator.estimate_request(chat_request).tokens == tokens
