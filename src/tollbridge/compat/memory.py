"""What an engine knows about servers: the quirks of their profiles, and its lessons."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from tollbridge.compat.lessons import (
    LIFETIME,
    apply_lessons,
    conversation_digest,
    describe_lesson,
    is_contradicted,
)
from tollbridge.compat.rules import REFUSED_LIMIT
from tollbridge.storage.limits import LIMITS
from tollbridge.storage.store import LessonStore, StoreUnusable
from tollbridge.storage.worker import Pending, wait_for_write
from tollbridge.types.messages import ChatRequest
from tollbridge.types.quirks import Hypothesis, LearnedQuirks, Lesson, Quirks

log = logging.getLogger(__name__)

# Stored lessons are read again after this many seconds: another process may have changed them.
_RELOAD_INTERVAL = 5.0


class CompatMemory:
    """The quirks of models: those of the profile of their server, and lessons.

    Args:
        profile: Returns the quirks of the profile for a base URL and a model; called by every `recall`.
        store: Where lessons are stored; by default nowhere.
        clock: Returns the time in seconds since the epoch.
    """

    def __init__(
        self,
        profile: Callable[[str, str], Quirks | None] | None = None,
        store: LessonStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._profile = profile
        self._store = store
        self._clock = clock
        # The base URL and the model of the last `recall`, and the quirks of their profile.
        self._recalled: tuple[str, str, Quirks | None] = ("", "", None)
        # The lessons by their keys, the oldest first.
        self._lessons: dict[tuple[str, ...], Lesson] = {}
        self._changes = 0  # of `_lessons`
        self._loading: Pending[list[Lesson]] | None = None
        self._loading_after = 0  # the value of `_changes` when loading started
        self._loaded_at = -_RELOAD_INTERVAL  # by the monotonic clock

    @property
    def persistent(self) -> bool:
        """Whether lessons are stored."""
        return self._store is not None

    def recall(self, base_url: str, model: str, request: ChatRequest | None = None) -> LearnedQuirks:
        """Return what is known about a model; empty quirks if nothing is.

        With a request, the lessons about its conversation are included.
        """
        quirks = self._profile(base_url, model) if self._profile is not None else None
        self._recalled = base_url, model, quirks
        learned = LearnedQuirks(quirks or Quirks())
        lessons = self._active(base_url, model, request)
        return apply_lessons(learned, lessons) if lessons else learned

    def profile(self, base_url: str, model: str) -> Quirks | None:
        """Return the quirks of the profile that the last `recall` has read; `None` for any other."""
        return self._recalled[2] if self._recalled[:2] == (base_url, model) else None

    def lessons(self, base_url: str, request: ChatRequest) -> list[Lesson]:
        """Return the lessons that hold for a request and have not expired."""
        return self._active(base_url, request.model, request)

    def accept(
        self, base_url: str, request: ChatRequest, sent: ChatRequest, hypotheses: Sequence[Hypothesis]
    ) -> None:
        """Note that a server has accepted a request: this confirms hypotheses and contradicts lessons.

        `request` is that of the caller, and `sent` what was sent of it, changed by the hypotheses.
        """
        earlier_lessons = self._find(base_url, request.model, request)
        if not earlier_lessons and not hypotheses:
            return
        confirmed = [self._confirm(base_url, request, hypothesis) for hypothesis in hypotheses]
        keys = {lesson.key for lesson in confirmed}
        deleted = [
            lesson for lesson in earlier_lessons if lesson.key not in keys and is_contradicted(lesson, sent)
        ]
        for lesson in (*confirmed, *deleted):
            self._lessons.pop(lesson.key, None)
        for lesson in confirmed:
            self._lessons[lesson.key] = lesson
            log.info("Learned from an error of %s: %s.", base_url, describe_lesson(lesson))
        for lesson in deleted:
            log.info("No longer true of %s: %s.", base_url, describe_lesson(lesson))
        while len(self._lessons) > LIMITS.lessons:
            self._lessons.pop(next(iter(self._lessons)))
        if confirmed or deleted:
            self._changes += 1
            if self._store is not None:
                self._store.change(confirmed, deleted)

    async def refresh(self, within: float) -> None:
        """Read the stored lessons, unless they were read a moment ago.

        If that takes more than `within` seconds, a later `recall` uses them.
        """
        self._take_loaded()
        now = time.monotonic()
        if self._store is not None and self._loading is None and now - self._loaded_at >= _RELOAD_INTERVAL:
            self._loading, self._loading_after = self._store.load(), self._changes
            with suppress(StoreUnusable):  # it is logged by the store
                await wait_for_write(self._loading, within)

    def _take_loaded(self) -> None:
        """Use the lessons that were read. If some were learned meanwhile, the next reading includes them."""
        if self._loading is None or not self._loading.done():
            return
        loading, self._loading = self._loading, None
        if loading.exception() is None and self._loading_after == self._changes:
            self._lessons = {lesson.key: lesson for lesson in loading.result()}
        self._loaded_at = time.monotonic()

    def _active(self, base_url: str, model: str, request: ChatRequest | None) -> list[Lesson]:
        now = self._clock()
        return [lesson for lesson in self._find(base_url, model, request) if lesson.expires_at > now]

    def _find(self, base_url: str, model: str, request: ChatRequest | None) -> list[Lesson]:
        """Return the lessons for a model and a conversation, also the expired ones, the oldest first."""
        self._take_loaded()
        lessons = [
            lesson
            for lesson in self._lessons.values()
            if lesson.base_url == base_url and lesson.model in ("", model)
        ]
        if not any(lesson.conversation for lesson in lessons):
            return lessons
        conversation = "" if request is None else conversation_digest(request)
        return [lesson for lesson in lessons if lesson.conversation in ("", conversation)]

    def _confirm(self, base_url: str, request: ChatRequest, hypothesis: Hypothesis) -> Lesson:
        now = self._clock()
        lesson = Lesson(
            base_url=base_url,
            model="" if hypothesis.scope == "server" else request.model,
            conversation=conversation_digest(request) if hypothesis.scope == "conversation" else "",
            feature=hypothesis.feature,
            subject=hypothesis.subject,
            value=hypothesis.value,
            evidence=hypothesis.evidence,
            learned_at=now,
            expires_at=now + LIFETIME[hypothesis.evidence.basis],
        )
        earlier = self._lessons.get(lesson.key)
        if earlier is None:
            return lesson
        value = lesson.value
        if isinstance(value, list):
            value = [*value, *(item for item in earlier.value if item not in value)][:REFUSED_LIMIT]
        return msgspec.structs.replace(lesson, value=value, confirmations=earlier.confirmations + 1)
