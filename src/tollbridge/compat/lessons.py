"""Lessons: what was learned about a server from requests that it rejected.

An error is a hypothesis about the server. The request is changed accordingly and sent again at once. If the
server accepts it, the hypothesis becomes a lesson, with the error as its evidence; otherwise it is discarded.

- Scope: a refused item (an image, reasoning, the signature of a call) and a history that was rejected concern
  one conversation; a request field or a kind of content one model; the form of requests the whole server.
- Expiry: a lesson from the words of a message is tried again after a day, one from a code or a parameter
  after 14 days. If the server then accepts the feature, the lesson is deleted; an error renews it.
- A lesson is also deleted when the server accepts the feature in another request.

Lessons are stored, if there is a store; `tollbridge quirks` shows and deletes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from hashlib import blake2s

import msgspec

from tollbridge.compat.fields import has_field
from tollbridge.compat.rules import CONTENT_TESTS
from tollbridge.types.messages import ChatRequest, DataPart, Role, TextPart
from tollbridge.types.quirks import Basis, Hypothesis, LearnedQuirks, Lesson, Quirks

DAY = 86_400.0
# Seconds until a lesson expires, by what identified the rejected feature.
LIFETIME: dict[Basis, float] = {"parameter": 14 * DAY, "code": 14 * DAY, "words": DAY}


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
