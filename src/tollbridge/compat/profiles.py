"""Profiles: the quirks of each server and model, from three sources.

- Shipped profiles of known servers, in `data/*.toml`.
- Profiles that `tollbridge doctor` saves, one TOML file per base URL. Users may edit them.
- Lessons from rejected requests.

Saved profiles override shipped ones, and lessons override both.

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
import json
import logging
import os
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from hashlib import blake2s
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from tollbridge.compat.repairs import CONTENT_TESTS, REFUSED_LIMIT, has_field
from tollbridge.storage.database import Database, StoreUnusable, WorkerThread
from tollbridge.storage.tables import LESSON_LIMIT, LessonTable
from tollbridge.transport.files import data_folder, make_folder
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import ChatRequest, DataPart, Role, TextPart
from tollbridge.types.quirks import Basis, Hypothesis, LearnedQuirks, Lesson, Quirks
from tollbridge.types.urls import is_loopback

log = logging.getLogger(__name__)
T = TypeVar("T")


# --- Finding the quirks of a model ---


def find_quirks(
    base_url: str, model: str, folder: Path | None = None, *, owners: Collection[str] = ()
) -> Quirks | None:
    """Return the quirks of a model: those of the saved profile, then those of the shipped one.

    Args:
        folder: The folder of the saved profiles; by default, that of the data directory.
        owners: The `owned_by` values in the server's model list, which identify some servers.

    Returns:
        The quirks, or `None` if there is no profile.

    Raises:
        UnreadableProfile: If the saved profile exists and is not valid.
    """
    server = recognize_server(base_url, owners=owners)
    shipped = server.quirks if server else None
    profile = load_profile(base_url, folder)
    return shipped if profile is None else profile.quirks_for(model, shipped)


# Quirks of the server. All other quirks belong to a model, and may differ for the server's other models.
SERVER_QUIRKS = frozenset({"calls", "system", "text_as", "tools_as", "input_tokens", "cache_fields"})
# Quirks that `tollbridge doctor` does not measure. Its profiles leave them as they are.
_UNMEASURED_QUIRKS = frozenset({"cache_diagnostics"})
# Request fields that a server rejects for every model.
SERVER_OMISSIONS = frozenset({"store"})


class Profile(msgspec.Struct, frozen=True):
    """The quirks of one server and its models.

    Attributes:
        quirks: The quirks of the server.
        models: The quirks of each model, by field name.
        server_fields: The fields of `quirks` that the profile sets; the others are unknown.
    """

    quirks: Quirks = Quirks()
    models: Mapping[str, Mapping[str, Any]] = {}
    server_fields: frozenset[str] = frozenset(Quirks.__struct_fields__)

    @classmethod
    def from_findings(cls, model: str, quirks: Quirks) -> Profile:
        """Split the quirks measured with one model into those of the server and those of the model."""
        fields = msgspec.structs.asdict(quirks)
        fields = {name: value for name, value in fields.items() if name not in _UNMEASURED_QUIRKS}
        server = {name: value for name, value in fields.items() if name in SERVER_QUIRKS}
        model_fields = {name: value for name, value in fields.items() if name not in SERVER_QUIRKS}
        server["without"] = quirks.without & SERVER_OMISSIONS
        model_fields["without"] = quirks.without - SERVER_OMISSIONS
        return cls(Quirks(**server), {model: model_fields}, frozenset(server))

    def quirks_for(self, model: str, shipped: Quirks | None = None) -> Quirks:
        """Return the quirks of one model. Fields that the profile does not set have their `shipped` value.

        `without` is combined: a field is omitted if the server or the model requires it.
        """
        base, model_fields = shipped or Quirks(), self.models.get(model, {})
        server = {name: getattr(self.quirks, name) for name in self.server_fields}
        omitted = self.quirks.without
        if "without" in model_fields:
            omitted = omitted.union(model_fields["without"])
        else:
            omitted = omitted | base.without
        return apply_findings(base, {**server, **model_fields, "without": omitted})


def apply_findings(quirks: Quirks, fields: Mapping[str, Any]) -> Quirks:
    """Return the quirks with these fields changed.

    Raises:
        msgspec.ValidationError: If a field is unknown or has an invalid value.
    """
    return msgspec.convert({**msgspec.structs.asdict(quirks), **fields}, Quirks)


# --- Shipped profiles ---


class Recognition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server is recognized by; one match is enough.

    Attributes:
        hosts: Host names.
        ports: Ports; they only count if the server is on this machine.
        headers: Response headers, each with the start of its value.
        owners: Values of `owned_by` in the model list.
    """

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    headers: Mapping[str, str] = {}
    owners: tuple[str, ...] = ()


class KnownServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shipped profile."""

    name: str
    recognized_by: Recognition
    quirks: Quirks = Quirks()


@cache
def load_known_servers() -> tuple[KnownServer, ...]:
    """Return the shipped profiles, in the order of their file names."""
    paths = sorted(Path(__file__).with_name("data").glob("*.toml"))
    return tuple(msgspec.toml.decode(path.read_bytes(), type=KnownServer) for path in paths)


def known_quirks(name: str) -> Quirks:
    """Return the quirks of a known server by name, for servers that Tollbridge starts itself."""
    return next(server.quirks for server in load_known_servers() if server.name == name)


def recognize_server(
    base_url: str, headers: Mapping[str, str] | None = None, owners: Collection[str] = ()
) -> KnownServer | None:
    """Return the known server at a base URL, or `None`.

    Response headers and model owners take precedence over the host and the port.
    """
    servers = load_known_servers()
    headers = headers or {}
    by_response = [each for each in servers if _matches_response(each.recognized_by, headers, owners)]
    by_address = [each for each in servers if _matches_address(each.recognized_by, base_url)]
    return next(iter([*by_response, *by_address]), None)


def _matches_response(rules: Recognition, headers: Mapping[str, str], owners: Collection[str]) -> bool:
    if any(owner in owners for owner in rules.owners):
        return True
    return any(name in headers and headers[name].startswith(prefix) for name, prefix in rules.headers.items())


def _matches_address(rules: Recognition, base_url: str) -> bool:
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    return host in rules.hosts or (port in rules.ports and is_loopback(host))


# --- Saved profiles ---


class UnreadableProfile(RequestError):
    """Raised when a saved profile is not valid. The message contains its path, because users may edit it."""


def profile_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the saved profiles."""
    return data_folder(environment) / "profiles"


def profile_file(base_url: str, folder: Path | None = None) -> Path:
    """Return the path of a base URL's profile: a readable name, and a hash that makes it unique."""
    url = _normalize_url(base_url)
    name = re.sub(r"[^a-z0-9.]+", "-", url.partition("://")[2].lower()).strip("-.")[:60]
    url_hash = blake2s(url.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return (folder or profile_folder()) / f"{name or 'server'}-{url_hash}.toml"


def load_profile(base_url: str, folder: Path | None = None) -> Profile | None:
    """Read the saved profile of a base URL; return `None` if there is none.

    Raises:
        UnreadableProfile: If the file cannot be read or is not valid.
    """
    path = profile_file(base_url, folder)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableProfile(f"The profile {path} cannot be read: {error.strerror or error}.") from error
    try:
        return _parse_profile(msgspec.toml.decode(data, type=dict[str, Any]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableProfile(
            f"Invalid profile {path}: {error}. Fix it, or run `tollbridge doctor` again."
        ) from error


def list_profiles(folder: Path | None = None) -> dict[str, Profile]:
    """Return the saved profiles by base URL. Files that are not valid are skipped."""
    profiles: dict[str, Profile] = {}
    for path in sorted((folder or profile_folder()).glob("*.toml")):
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.MsgspecError):
            table = msgspec.toml.decode(path.read_bytes(), type=dict[str, Any])
            if isinstance(base_url := table.get("base_url"), str):
                profiles[base_url] = _parse_profile(table)
    return profiles


def save_profile(
    base_url: str, model: str, quirks: Quirks, comments: Iterable[str] = (), folder: Path | None = None
) -> Path:
    """Save the quirks measured with one model, and keep those of the server's other models.

    Args:
        comments: Lines for the head of the file.

    Returns:
        The path of the file.

    Raises:
        OSError: If the file cannot be written.
    """
    path = profile_file(base_url, folder)
    profile = Profile.from_findings(model, quirks)
    earlier_models: Mapping[str, Mapping[str, Any]] = {}
    with contextlib.suppress(UnreadableProfile):
        earlier = load_profile(base_url, folder)
        earlier_models = earlier.models if earlier is not None else {}
    profile = msgspec.structs.replace(profile, models={**earlier_models, **profile.models})
    text = _format_profile(base_url, profile, comments)
    make_folder(path.parent)
    # Written to a temporary file and renamed, because another process may be reading it.
    file = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)  # noqa: SIM115 - closed below
    try:
        with file:
            file.write(text.encode("utf-8", "replace"))
        os.replace(file.name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        raise
    return path


def _parse_profile(table: dict[str, Any]) -> Profile:
    table.pop("base_url", None)
    models = msgspec.convert(table.pop("models", {}), dict[str, dict[str, Any]])
    profile = Profile(msgspec.convert(table, Quirks), models, frozenset(table))
    for model in models:
        profile.quirks_for(model)  # raises now, and not during a request, if a field is invalid
    return profile


def _normalize_url(base_url: str) -> str:
    return base_url.rstrip("/")


def _format_profile(base_url: str, profile: Profile, comments: Iterable[str]) -> str:
    server = {name: getattr(profile.quirks, name) for name in profile.server_fields}
    lines = [f"# {' '.join(comment.split())}" for comment in comments]
    lines.append(f"base_url = {_format_value(_normalize_url(base_url))}")
    lines += _format_fields(server)
    for model, fields in profile.models.items():
        lines += ["", f"[models.{_format_value(model)}]", *_format_fields(fields)]
    return "\n".join(lines) + "\n"


def _format_fields(fields: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_format_value(value)}" for name, value in sorted(fields.items())]


def _format_value(value: Any) -> str:
    """Format a string, boolean or list as TOML, which equals JSON except for the character U+007F."""
    plain = sorted(value) if isinstance(value, frozenset) else value
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- Lessons ---

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
    # Sorted: the order of a set differs from process to process.
    return f"{name} = {msgspec.json.encode(value, order='deterministic').decode()}"
