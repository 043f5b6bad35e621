"""The request that a turn sends: made valid for its server, and changed after a rejection."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from tollbridge.compat.fields import SENSITIVE_NOTES, describe_omissions, omitted_fields
from tollbridge.compat.lessons import describe_lesson, uses_feature
from tollbridge.compat.memory import CompatMemory
from tollbridge.compat.repairs import find_repair
from tollbridge.estimator import Preflight
from tollbridge.history.answer import AnswerEvents
from tollbridge.history.normalize import MIN_OUTPUT_TOKENS, NormalizedRequest, normalize_request
from tollbridge.policy.limits import MIN_ROOM
from tollbridge.types.errors import BridgeError, ContextTooLong
from tollbridge.types.messages import ChatRequest, Origin
from tollbridge.types.models import Capabilities
from tollbridge.types.quirks import Hypothesis, LearnedQuirks, Lesson

log = logging.getLogger(__name__)

# How often a request is changed and sent again. A server can reject several features, one after the other.
REPAIR_LIMIT = 3


class PreparedRequest:
    """A request made valid for its server, and again after each rejection that can be repaired.

    A repair is only a hypothesis about the server. `accept` is called when the first event has arrived: it
    confirms the hypotheses of this turn, and from then on the request is not sent again. If the turn fails
    before, nothing is learned.

    Args:
        compat: What is known about servers, and where lessons are remembered.
        learned: What `compat` says about this model, if the caller looked it up already.
        min_output_tokens: The lowest output limit that the server's protocol allows.
    """

    def __init__(
        self,
        request: ChatRequest,
        base_url: str,
        compat: CompatMemory,
        capabilities: Capabilities | None = None,
        learned: LearnedQuirks | None = None,
        *,
        min_output_tokens: int = MIN_OUTPUT_TOKENS,
    ) -> None:
        # Whether the gateway has accepted the request, see `accept`.
        self.is_accepted = False
        # The estimate of the prompt, for a rejection that does not say how long it is.
        self.preflight: Preflight | None = None
        self._min_output_tokens = min_output_tokens
        self._original = request
        self._base_url = base_url
        self._compat = compat
        self._capabilities = capabilities
        self._origin = Origin.of(request.model, base_url)
        self._learned = learned or compat.recall(base_url, request.model, request)
        self._hypotheses: list[Hypothesis] = []
        self._repairs = 0
        self._changes: dict[str, None] = {}
        self._normalized = self._normalize(self._learned)
        # Lessons about the whole server only concern the form of requests, which users do not see.
        self._add_lesson_note(
            lesson
            for lesson in compat.lessons(base_url, request)
            if lesson.model and uses_feature(lesson, request)
        )

    @property
    def request(self) -> ChatRequest:
        """The request to send."""
        return self._normalized.request

    @property
    def changes(self) -> tuple[str, ...]:
        """One sentence for each thing that was changed; those in `warnings` come first."""
        return (*self.warnings, *(change for change in self._changes if change not in SENSITIVE_NOTES))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The changes that concern privacy or the meaning of the answer."""
        return tuple(change for change in self._changes if change in SENSITIVE_NOTES)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of thing was changed."""
        return self._normalized.counts

    def answer_events(self) -> AnswerEvents:
        """Return the converter for the events of the answer to this request."""
        tools = frozenset(tool.name for tool in self._original.tools)
        return AnswerEvents(self._normalized.names.back, tools=tools)

    def add_changes(self, changes: Iterable[str]) -> None:
        for change in changes:
            if change not in self._changes:
                self._changes[change] = None
                log.info("%s", change)

    def limit_output(self, tokens: int) -> None:
        """Set the output limit of the request."""
        self._original = msgspec.structs.replace(self._original, max_output_tokens=tokens)
        limited = msgspec.structs.replace(self.request, max_output_tokens=tokens)
        self._normalized = msgspec.structs.replace(self._normalized, request=limited)

    def repair(self, error: BridgeError, sent: ChatRequest | None = None) -> bool:
        """Change the request after a rejection, at most `REPAIR_LIMIT` times, and never in the same way.

        Return whether to send it again. `sent` is what was rejected, if fields were added to the request.
        """
        if self.is_accepted or self._repairs == REPAIR_LIMIT:
            return False
        if isinstance(error, ContextTooLong):
            return self._make_room(error)
        repair = find_repair(error, sent or self.request, self._learned)
        if repair is None:
            return False
        self._repairs += 1
        log.info("The gateway rejected the request (%s); retrying with changes.", error.code or error.kind)
        self.add_changes(repair.changes)
        self._hypotheses += repair.hypotheses
        self._learned = repair.learned
        self._normalized = self._normalize(repair.learned)
        return True

    def _make_room(self, error: ContextTooLong) -> bool:
        """Lower the output limit if the prompt fits the window, and only prompt and answer together do not.

        A gateway without a limit from the caller may assume the model's largest.
        """
        tokens, limit = error.tokens, error.limit
        if tokens is None and error.shared and self.preflight is not None:
            tokens = self.preflight.estimate.tokens
        if tokens is None or limit is None:
            return False
        room, previous = limit - tokens, self.request.max_output_tokens
        if room < MIN_ROOM or (previous is not None and room >= previous):
            return False
        self._repairs += 1
        self.limit_output(room)
        share = f"the prompt takes {tokens:,} of the {limit:,} tokens of the context window"
        self.add_changes([f"Limited the answer to {room:,} tokens: {share}."])
        return True

    def accept(self) -> None:
        """Note that the gateway has accepted the request."""
        self.is_accepted = True
        self._compat.accept(self._base_url, self._original, self.request, self._hypotheses)
        self._add_lesson_note(self._hypotheses)

    def _add_lesson_note(self, lessons: Iterable[Lesson | Hypothesis]) -> None:
        """Say what was learned, if the user can undo it."""
        if self._compat.persistent and (facts := "; ".join(map(describe_lesson, lessons))):
            note = (
                f"Learned from errors of this gateway: {facts}. `tollbridge quirks` shows and removes this."
            )
            self.add_changes([note])

    def _normalize(self, learned: LearnedQuirks) -> NormalizedRequest:
        quirks, capabilities = learned.quirks, self._capabilities
        reasons = self._original.reasons or (capabilities is not None and capabilities.reasoning)
        request = msgspec.structs.replace(self._original, quirks=quirks, reasons=reasons)
        if capabilities is not None:
            # Content that the model cannot accept is replaced as if the server rejected it.
            accepted = msgspec.structs.replace(
                quirks,
                images=quirks.images and capabilities.images,
                files=quirks.files and capabilities.files,
            )
            learned = msgspec.structs.replace(learned, quirks=accepted)
        normalized = normalize_request(
            request, learned, self._origin, min_output_tokens=self._min_output_tokens
        )
        self.add_changes(normalized.changes)
        if quirks.without:
            self.add_changes(describe_omissions(omitted_fields(request, quirks)))
        return normalized
