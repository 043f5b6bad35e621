"""Lessons: what was learned about servers from rejected requests.

An error is a hypothesis about the server. The request is changed accordingly and sent again at once. If the
server accepts it, the hypothesis becomes a lesson, with the error as its evidence; otherwise it is discarded.

- Scope: a refused item (an image, reasoning, the signature of a call) and a history that was rejected concern
  one conversation; a request field or a kind of content one model; the form of requests the whole server.
- Expiry: a lesson from the words of a message is tried again after a day, one from a code or a parameter
  after 14 days. If the server then accepts the feature, the lesson is deleted; an error renews it.
- A lesson is also deleted when the server accepts the feature in another request.

Lessons are stored in the database, if there is one; `tollbridge quirks` shows and deletes them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from hashlib import blake2s
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from tollbridge.compat.parameters import has_field
from tollbridge.storage.database import Database, StoreUnusable, WorkerThread
from tollbridge.storage.tables import LESSON_LIMIT, LessonTable
from tollbridge.types.messages import ChatRequest, DataPart, Role, TextPart
from tollbridge.types.quirks import Basis, Hypothesis, LearnedQuirks, Lesson, Quirks

log = logging.getLogger(__name__)

T = TypeVar("T")

DAY = 86_400.0
# Seconds until a lesson expires, by what identified the rejected feature.
LIFETIME: dict[Basis, float] = {"parameter": 14 * DAY, "code": 14 * DAY, "words": DAY}
# The number of models for which quirks are kept; the oldest are dropped.
MODEL_LIMIT = 256
# Stored lessons are read again after this many seconds: another process may have changed them.
_RELOAD_INTERVAL = 5.0
# The number of changes that wait while the database cannot be used; the oldest are dropped.
_UNWRITTEN_LIMIT = 100
# Seconds that closing waits until everything learned is stored.
_CLOSING_TIMEOUT = 1.0


# --- The effect of lessons ---


def apply_lessons(learned: LearnedQuirks, lessons: Iterable[Lesson]) -> LearnedQuirks:
    """Return what is known about a model with these lessons, in the order in which they were learned.

    A lesson about a value only has an effect if the value is the one that was rejected.
    """
    fields = msgspec.structs.asdict(learned.quirks)
    items = {"refused": learned.refused, "calls_as_text": learned.calls_as_text}
    for lesson in lessons:
        name, value = lesson.feature, lesson.value
        if name == "without":
            value = fields[name] | {lesson.subject}
        elif name in items and isinstance(value, list):
            items[name] = items[name].union(map(str, value))
            continue
        elif name not in fields or str(fields[name]) != lesson.subject:
            continue
        # A lesson that another version has stored may not be valid in this one.
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.convert({name: value}, Quirks)
            fields[name] = value
    return LearnedQuirks(Quirks(**fields), items["refused"], items["calls_as_text"])


def uses_feature(lesson: Lesson, request: ChatRequest) -> bool:
    """Return whether a request contains what a lesson is about. Single items are not looked for."""
    if lesson.feature == "without":
        return has_field(request, lesson.subject)
    # Imported here: its patterns take time to compile, and few servers have lessons.
    from tollbridge.compat.repairs import CONTENT_TESTS

    test = CONTENT_TESTS.get(lesson.feature)
    return test is not None and test(request)


def is_contradicted(lesson: Lesson, accepted: ChatRequest) -> bool:
    """Return whether the server accepted what it rejected, according to a lesson, before."""
    quirks = accepted.quirks or Quirks()
    if lesson.feature == "without":
        sent = lesson.subject not in quirks.without
    else:
        sent = str(getattr(quirks, lesson.feature, None)) == lesson.subject
    return sent and uses_feature(lesson, accepted)


def conversation_digest(request: ChatRequest) -> str:
    """Return a digest that identifies a conversation by its first user message."""
    first = next((message for message in request.messages if message.role is Role.USER), None)
    digest = blake2s(digest_size=12)
    for part in first.parts if first is not None else ():
        if isinstance(part, TextPart):
            digest.update(b"text " + part.text.encode("utf-8", "surrogatepass"))
        elif isinstance(part, DataPart):
            digest.update(b"data ")
            digest.update(part.data)
    return digest.hexdigest()


# --- Stored lessons ---


class LessonStore:
    """Reads and writes the lessons in a database, on a background thread.

    While the database cannot be used, changes wait in memory; this is logged once.

    Args:
        path: The database file, which is opened on first use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: LessonTable | None = None
        self._worker = WorkerThread("lessons")
        self._unwritten: deque[Callable[[LessonTable], None]] = deque(maxlen=_UNWRITTEN_LIMIT)
        self._is_used = False
        self._is_reported = False

    def load(self) -> Future[list[Lesson] | None]:
        """Read all lessons; the future's result is `None` if the database cannot be used."""
        self._is_used = True
        return self._worker.submit(lambda: self._run(lambda table: table.load()))

    def save(self, confirmed: Sequence[Lesson], deleted: Sequence[Lesson]) -> None:
        self._is_used = True
        self._unwritten.append(lambda table: table.change(confirmed, deleted))
        self._worker.submit(lambda: self._run(lambda _: None))

    def close(self) -> None:
        """Wait until everything is written, at most a second."""
        if self._is_used:
            self._worker.submit(self._close_table)
        self._worker.close(_CLOSING_TIMEOUT)

    def _run(self, operation: Callable[[LessonTable], T]) -> T | None:
        """Write what is waiting, then run an operation."""
        try:
            if self._table is None:
                self._table = LessonTable(Database(self._path, _CLOSING_TIMEOUT / 2))
            while self._unwritten:
                with contextlib.suppress(UnicodeEncodeError):  # a model name that is not valid text
                    self._unwritten[0](self._table)
                self._unwritten.popleft()
            result = operation(self._table)
        except StoreUnusable as error:
            if not self._is_reported:
                log.warning("%s; what is learned about servers is not stored", error.message)
                self._is_reported = True
            return None
        self._is_reported = False
        return result

    def _close_table(self) -> None:
        if self._table is not None:
            self._table.close()


def read_lessons(path: Path) -> list[Lesson]:
    """Return the lessons in a database file, which need not exist.

    Raises:
        StoreUnusable: The database cannot be read.
    """
    return _use_table(path, lambda table: table.load()) if path.exists() else []


def forget_lessons(path: Path, selects: Callable[[Lesson], bool]) -> list[Lesson]:
    """Delete the stored lessons that a function selects, and return them.

    Raises:
        StoreUnusable: The database cannot be written.
    """
    lessons = [lesson for lesson in read_lessons(path) if selects(lesson)]
    if lessons:
        _use_table(path, lambda table: table.change((), lessons))
    return lessons


def _use_table(path: Path, operation: Callable[[LessonTable], T]) -> T:
    database = Database(path, _CLOSING_TIMEOUT)
    try:
        return operation(LessonTable(database))
    finally:
        database.close()


# --- What an engine knows about servers ---


class CompatStore(Protocol):
    """Stores the learned quirks of each model at each gateway."""

    @property
    def persistent(self) -> bool:
        """Whether lessons are stored in a database."""

    def recall(self, base_url: str, model: str, request: ChatRequest | None = None) -> LearnedQuirks:
        """Return what is known about a model; empty quirks if nothing is.

        Args:
            base_url: The server.
            model: The model.
            request: A request of the conversation whose own lessons are included.
        """

    def lessons(self, base_url: str, request: ChatRequest) -> list[Lesson]:
        """Return the lessons that hold for a request and have not expired."""

    def accept(
        self, base_url: str, request: ChatRequest, sent: ChatRequest, hypotheses: Sequence[Hypothesis]
    ) -> None:
        """Note that a server has accepted a request: this confirms hypotheses and contradicts lessons.

        Args:
            base_url: The server.
            request: The request of the caller.
            sent: The request as it was sent.
            hypotheses: The hypotheses by which it was changed.
        """


class CompatMemory:
    """A `CompatStore` in memory, which reads and writes its lessons if there is a store.

    Args:
        profile: Returns the initial quirks for a base URL and a model; called by every `recall`. If the
            result changes, because a profile was saved or a model list was read, quirks that were set with
            `learn` are discarded.
        store: Where lessons are stored.
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
        # The profile's quirks and those that were set, by base URL and model; the oldest entry first.
        self._entries: dict[tuple[str, str], tuple[Quirks | None, LearnedQuirks]] = {}
        # The lessons by their keys, the oldest first.
        self._lessons: dict[tuple[str, ...], Lesson] = {}
        self._changes = 0  # of `_lessons`
        self._loading: Future[list[Lesson] | None] | None = None
        self._loading_after = 0  # the value of `_changes` when loading started
        self._loaded_at = -_RELOAD_INTERVAL  # by the monotonic clock

    @property
    def persistent(self) -> bool:
        return self._store is not None

    def recall(self, base_url: str, model: str, request: ChatRequest | None = None) -> LearnedQuirks:
        initial = self._profile(base_url, model) if self._profile is not None else None
        earlier_initial, learned = self._entries.get((base_url, model), (None, None))
        if learned is None or earlier_initial != initial:
            learned = LearnedQuirks(initial or Quirks())
            self._set(base_url, model, initial, learned)
        lessons = self._active(base_url, model, request)
        return apply_lessons(learned, lessons) if lessons else learned

    def profile(self, base_url: str, model: str) -> Quirks | None:
        """Return the initial quirks of the last `recall`, or `None` if there were none."""
        return self._entries.get((base_url, model), (None, None))[0]

    def learn(self, base_url: str, model: str, learned: LearnedQuirks) -> None:
        """Set what is known about a model, without evidence; it is not stored."""
        initial, _ = self._entries.get((base_url, model), (None, None))
        self._set(base_url, model, initial, learned)

    def lessons(self, base_url: str, request: ChatRequest) -> list[Lesson]:
        return self._active(base_url, request.model, request)

    def accept(
        self, base_url: str, request: ChatRequest, sent: ChatRequest, hypotheses: Sequence[Hypothesis]
    ) -> None:
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
        while len(self._lessons) > LESSON_LIMIT:
            self._lessons.pop(next(iter(self._lessons)))
        if confirmed or deleted:
            self._changes += 1
            if self._store is not None:
                self._store.save(confirmed, deleted)

    def load(self) -> Future[list[Lesson] | None] | None:
        """Start to read the stored lessons, unless they were read a moment ago.

        Returns:
            A future to wait for, so that the next `recall` uses them; `None` if nothing is read.
        """
        self._take_loaded()
        now = time.monotonic()
        if self._store is None or self._loading is not None or now - self._loaded_at < _RELOAD_INTERVAL:
            return None
        self._loading, self._loading_after = self._store.load(), self._changes
        return self._loading

    def close(self) -> None:
        """Finish writing."""
        if self._store is not None:
            self._store.close()

    def _take_loaded(self) -> None:
        """Use the lessons that were read. If some were learned meanwhile, the next reading includes them."""
        if self._loading is None or not self._loading.done():
            return
        stored, self._loading = self._loading.result(), None
        if stored is not None and self._loading_after == self._changes:
            self._lessons = {lesson.key: lesson for lesson in stored}
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
            from tollbridge.compat.repairs import REFUSED_LIMIT

            value = [*value, *(item for item in earlier.value if item not in value)][:REFUSED_LIMIT]
        return msgspec.structs.replace(lesson, value=value, confirmations=earlier.confirmations + 1)

    def _set(self, base_url: str, model: str, initial: Quirks | None, learned: LearnedQuirks) -> None:
        self._entries.pop((base_url, model), None)
        while len(self._entries) >= MODEL_LIMIT:
            self._entries.pop(next(iter(self._entries)))
        self._entries[(base_url, model)] = initial, learned


# --- Descriptions ---


def describe_lesson(lesson: Lesson | Hypothesis) -> str:
    """Return a lesson as a short text, such as `temperature is not sent`."""
    match lesson.feature:
        case "without":
            return f"{lesson.subject} is not sent"
        case "refused":
            return f"refused items are not sent ({len(lesson.value)})"
        case "calls_as_text":
            return f"rejected tool calls are sent as text ({len(lesson.value)})"
        case feature:
            return _describe_value(feature, lesson.value)


def describe_quirks(quirks: Quirks, *, base: Quirks | None = None) -> list[str]:
    """Return the quirks that differ from `base`, by default from those of a fully conforming server."""
    base = base or Quirks()
    texts = [f"{field} is not sent" for field in sorted(quirks.without - base.without)]
    for name in Quirks.__struct_fields__:
        value = getattr(quirks, name)
        if name != "without" and value != getattr(base, name):
            texts.append(_describe_value(name, value))
    return texts


def _describe_value(name: str, value: object) -> str:
    return f"{name} = {msgspec.json.encode(value).decode()}"
