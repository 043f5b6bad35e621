"""The token estimator of the public API."""

from __future__ import annotations

import logging
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.storage.locking import locked
from tests.storage.stored import create_database, open_estimator, open_store
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
from tollbridge.storage.limits import Limits
from tollbridge.storage.sqlite import SqliteTokens
from tollbridge.tokens.records import LedgerChanges
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
    truth = hidden_count(request(MESSAGES))
    with open_estimator(tmp_path / "store.db") as first:
        first.calibrate(MODEL, MESSAGES, Usage(truth))
        text = first.estimate_text(MODEL, PROSE)
    with open_estimator(tmp_path / "store.db") as second:
        assert second.estimate_conversation(MODEL, MESSAGES).tokens == truth
        assert second.estimate_text(MODEL, PROSE) == text
        assert [accuracy.requests for accuracy in second.accuracy()] == [1]


def test_estimators_with_the_same_file_share_what_they_learn(tmp_path: Path) -> None:
    with open_estimator(tmp_path / "store.db") as one, open_estimator(tmp_path / "store.db") as other:
        assert other.estimate_conversation(MODEL, MESSAGES).method == "estimated"
        one.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
        assert other.estimate_conversation(MODEL, MESSAGES).method == "actual"


def test_what_another_process_learns_during_a_calibration_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opening(number: int) -> ChatRequest:
        return request([user(f"{number} {PROSE * 4}")])

    def calibrate(estimator: HybridTokenEstimator, number: int) -> None:
        usage = Usage(round(1.4 * hidden_count(opening(number))))
        assert estimator.calibrate_request(opening(number), usage)

    with open_estimator(tmp_path / "in turn.db") as alone:
        for number in range(6):
            calibrate(alone, number)
        expected = alone.estimate_request(request(MESSAGES)).tokens
    with open_estimator(tmp_path / "store.db") as one, open_estimator(tmp_path / "store.db") as other:
        commit, conflicts = SqliteTokens.commit, list[bool]()

        def commit_late(
            tokens: SqliteTokens, changes: LedgerChanges, timeout: float | None = None
        ) -> int | None:
            if len(conflicts) % 2 == 0 and len(conflicts) < 6:
                conflicts.append(True)  # the other one reads and writes between this one's read and write
                calibrate(other, len(conflicts) - 1)
            elif conflicts:
                conflicts.append(False)
            return commit(tokens, changes, timeout)

        monkeypatch.setattr(SqliteTokens, "commit", commit_late)
        for number in (1, 3, 5):
            calibrate(one, number)
        monkeypatch.undo()
        # Both have learned from all six reports, in the order in which they were stored.
        assert one.estimate_request(request(MESSAGES)).tokens == expected
        assert other.estimate_request(request(MESSAGES)).tokens == expected
        [accuracy] = one.accuracy()
        assert accuracy.requests == 6


def test_the_revision_changes_only_when_counts_change(tmp_path: Path) -> None:
    with open_estimator(tmp_path / "store.db") as one, open_estimator(tmp_path / "store.db") as other:
        for model in (MODEL, "openai/gpt-5"):
            one.estimate_text(model, PROSE)
        chat_request = request(MESSAGES)
        one.estimate_request(chat_request)
        before = one.revision
        with open_store(tmp_path / "store.db") as store:
            store.tokens.commit(LedgerChanges(outcomes=[("m", "hybrid", 1, 1, 1, "")]))
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


@pytest.mark.timed
def test_a_locked_database_loses_one_calibration_and_delays_no_estimate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, chat_request = tmp_path / "store.db", request(MESSAGES)
    create_database(path)
    with open_estimator(path, Limits(busy_timeout=0.3)) as estimator:
        with locked(path), ThreadPoolExecutor(1) as threads, caplog.at_level(logging.WARNING):
            learning = threads.submit(
                estimator.calibrate_request, chat_request, Usage(hidden_count(chat_request))
            )
            while not learning.done():
                started = time.monotonic()
                assert estimator.estimate_request(chat_request).method == "estimated"
                assert time.monotonic() - started < 0.2
        assert "calibration from this request was not saved" in caplog.text
        # The database is still usable, for this process and the next.
        assert estimator.calibrate_request(chat_request, Usage(hidden_count(chat_request)))
    with open_estimator(path) as again:
        assert again.estimate_request(chat_request).method == "actual"


def test_the_timeout_of_writes_can_be_set(tmp_path: Path) -> None:
    path, chat_request = tmp_path / "store.db", request(MESSAGES)
    create_database(path)
    with open_estimator(path, timeout=0.0) as estimator:
        started = time.monotonic()
        with locked(path):
            estimator.calibrate_request(chat_request, Usage(hidden_count(chat_request)))
        assert time.monotonic() - started < 5  # the default is 10 seconds


def test_reset_forgets_everything(tmp_path: Path) -> None:
    with open_estimator(tmp_path / "store.db") as estimator:
        before = estimator.estimate_conversation(MODEL, MESSAGES)
        estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
        estimator.reset()
        assert estimator.estimate_conversation(MODEL, MESSAGES) == before
        assert estimator.accuracy() == []


def test_without_a_usable_database_calibration_is_kept_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store.db").mkdir()
    with open_estimator(tmp_path / "store.db") as estimator, caplog.at_level(logging.WARNING):
        assert estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))
        assert estimator.estimate_conversation(MODEL, MESSAGES).method == "actual"
    assert "Cannot use the database" in caplog.text


def test_a_database_that_fails_later_raises_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_database(tmp_path / "store.db")
    with open_store(tmp_path / "store.db") as store:
        estimator = HybridTokenEstimator(store.tokens)
    with caplog.at_level(logging.WARNING):
        assert estimator.estimate_conversation(MODEL, MESSAGES).tokens > 0
    assert "continuing without saved calibration" in caplog.text
    assert estimator.calibrate(MODEL, MESSAGES, Usage(hidden_count(request(MESSAGES))))


def test_a_database_that_recovers_is_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr("tollbridge.estimator._RETRY_SECONDS", 0.0)
    create_database(tmp_path / "store.db")
    usage = Usage(hidden_count(request(MESSAGES)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_estimator(tmp_path / "store.db") as estimator, caplog.at_level(logging.WARNING):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file can grow: as on a full disk
        try:
            for _ in range(3):
                estimator.calibrate(MODEL, MESSAGES, usage)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert caplog.text.count("continuing without saved calibration") == 1
        assert estimator.calibrate(MODEL, MESSAGES, usage)
    with open_estimator(tmp_path / "store.db") as again:
        assert again.estimate_conversation(MODEL, MESSAGES).method == "actual"


def test_warm_loads_the_vocabularies_of_models() -> None:
    thread = HybridTokenEstimator().warm("anthropic/claude-sonnet-4.5", "openai/gpt-5")
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_threads_can_share_an_estimator(tmp_path: Path) -> None:
    chat_requests = [request([user(f"Question {number}. {PROSE}")]) for number in range(40)]
    with open_estimator(tmp_path / "store.db") as estimator:

        def calibrate(item: ChatRequest) -> bool:
            estimator.estimate_text(MODEL, PROSE * 2)
            return estimator.calibrate_request(item, Usage(hidden_count(item)))

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(calibrate, chat_requests))
        assert {estimator.estimate_request(item).method for item in chat_requests} == {"actual"}
        [accuracy] = estimator.accuracy()
        assert accuracy.requests == 40


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
    with open_estimator(tmp_path / "store.db") as estimator:
        tokens = estimator.estimate_request(chat_request).tokens + 1
        for provider in ("a\nb", "\ud800", "x" * 100_000, ""):
            assert estimator.calibrate_request(chat_request, Usage(tokens), provider=provider)
        assert estimator.estimate_request(chat_request).tokens == tokens
