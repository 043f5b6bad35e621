"""One request on its way over the bridge: made legal for its reader, and once more if it is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from tollbridge.adapters.answer import AnswerParts
from tollbridge.core.errors import BridgeError
from tollbridge.core.messages import ChatRequest
from tollbridge.core.models import Capabilities
from tollbridge.core.reasoning import Origin
from tollbridge.healing import Learned, Lessons, find_cure, left_out, sent_without
from tollbridge.history import Sanitised, Target, sanitise

log = logging.getLogger(__name__)


class Crossing:
    """`begun` once anything was said: from then on nothing is asked again. `learned` is what the lessons
    say, where it was recalled already."""

    def __init__(
        self,
        request: ChatRequest,
        base_url: str,
        lessons: Lessons,
        abilities: Capabilities | None = None,
        learned: Learned | None = None,
    ) -> None:
        self.begun = False
        self._asked = request
        self._base_url = base_url
        self._lessons = lessons
        self._abilities = abilities
        self._origin = Origin.of(request.model, base_url)
        self._learned = learned or lessons.recall(base_url, request.model)
        self._refusal: BridgeError | None = None  # the one that was healed
        self._changes: dict[str, None] = {}
        self._legal = self._made(self._learned)

    @property
    def sent(self) -> ChatRequest:
        return self._legal.request

    @property
    def changes(self) -> tuple[str, ...]:
        return tuple(self._changes)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of thing was changed in what was sent."""
        return self._legal.counts

    def answer(self) -> AnswerParts:
        tools = frozenset(tool.name for tool in self._asked.tools)
        return AnswerParts(self._legal.names.back, self._origin, tools=tools)

    def note(self, changes: Iterable[str]) -> None:
        for change in changes:
            if change not in self._changes:
                self._changes[change] = None
                log.info("%s", change)

    def heal(self, error: BridgeError) -> bool:
        """Whether to ask again, with a request that is changed: once. What was changed is remembered, unless
        the very same refusal follows: then it was not what the gateway meant."""
        if self.begun:
            return False
        if self._refusal is not None:
            if (error.code, error.message) == (self._refusal.code, self._refusal.message):
                self._lessons.learn(self._base_url, self._asked.model, self._learned)
            return False
        cure = find_cure(error, self.sent, self._learned)
        if cure is None:
            return False
        self._refusal = error
        log.info("The gateway refused the request (%s); asking once more.", error.code or error.kind)
        self.note(cure.changes)
        self._lessons.learn(self._base_url, self._asked.model, cure.learned)
        self._legal = self._made(cure.learned)
        return True

    def _made(self, learned: Learned) -> Sanitised:
        quirks, can = learned.quirks, self._abilities
        target = Target(
            images=quirks.images and (can is None or can.images),
            files=quirks.files and (can is None or can.files),
            rich_results=quirks.rich_results,
            calls=quirks.calls,
            reasoning=quirks.reasoning,
            system=quirks.system != "user",
            origin=self._origin,
            refused=learned.refused,
            spoken=learned.spoken,
        )
        reasons = self._asked.reasons or (can is not None and can.reasoning)
        asked = msgspec.structs.replace(self._asked, quirks=quirks, reasons=reasons)
        legal = sanitise(asked, target)
        self.note(legal.changes)
        self.note(sent_without(left_out(asked, quirks)))
        return legal
