"""The examination: the steps in their order, each told as it begins and ends, and the quirks they find."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import KnownServer, apply_findings
from tollbridge.doctor import checks as answers
from tollbridge.doctor import checks as extras
from tollbridge.doctor import checks as way
from tollbridge.doctor import content_checks as contents
from tollbridge.doctor import content_checks as thoughts
from tollbridge.doctor import content_checks as tools
from tollbridge.doctor.session import Finding, ProbeLimits, ProbeSession, unknown
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.types.quirks import Quirks

Check = Callable[[ProbeSession], Awaitable[Finding]]

# In order: a step may use what the ones before it found.
STEPS: dict[str, tuple[str, Check]] = {
    "reach": ("Reach", way.check_reach),
    "tls": ("TLS and proxy", way.check_tls_and_proxy),
    "models": ("Models", way.check_models),
    "key": ("Key", way.check_key),
    "text": ("Text", answers.check_text),
    "stream": ("Stream", answers.check_stream),
    "usage": ("Usage", answers.check_usage),
    "arrays": ("Lists of parts", contents.check_arrays),
    "system": ("System prompt", contents.check_system),
    "tools": ("Tools", tools.check_tools),
    "history": ("Calls in the history", tools.check_history),
    "parallel": ("Parallel calls", tools.check_parallel_calls),
    "images": ("Images", contents.check_images),
    "results": ("Images in results", tools.check_rich_results),
    "files": ("Files", contents.check_files),
    "reasoning": ("Reasoning", thoughts.check_reasoning),
    "encrypted": ("Encrypted reasoning", thoughts.check_encrypted_reasoning),
    "replay": ("Reasoning sent back", thoughts.check_reasoning_replay),
    "parameters": ("Parameters", extras.check_parameters),
    "tokens": ("Token count", answers.check_input_tokens),
    "cancel": ("Cancellation", extras.check_cancellation),
}
# Without these there is nothing to go on with: no way, or no answer.
_NEEDED = ("reach", "text")
# What a server that takes everything is asked; one that refuses is asked a little more.
ABOUT = 20


class Step(msgspec.Struct, frozen=True):
    """One line of the checklist: under way while it has no finding."""

    name: str
    title: str
    finding: Finding | None = None
    seconds: float = 0.0


class Examination:
    """Examines one server with one model. Afterwards `quirks` are what Tollbridge should know of it."""

    def __init__(
        self,
        client: OpenResponsesClient,
        model: str | None = None,
        bounds: ProbeLimits | None = None,
        *,
        tracker: UsageTracker | None = None,
        payer: BillingAccount | None = None,
    ) -> None:
        """What is asked is written down in `tracker`, on the account of `payer`."""
        self._bench = ProbeSession(client, model, bounds, tracker, payer)
        self._learned: dict[str, object] = {}
        self.steps: list[Step] = []

    async def run(self) -> AsyncIterator[Step]:
        """Every step twice: as it begins, and as it has ended."""
        stopped = ""
        for name, (title, check) in STEPS.items():
            yield Step(name, title)
            began = time.monotonic()
            finding = unknown(f"Not looked at: {stopped}.") if stopped else await check(self._bench)
            self._learn(finding)
            step = Step(name, title, finding, time.monotonic() - began)
            self.steps.append(step)
            yield step
            if name in _NEEDED and finding.verdict != "well" and not self._goes_on(name):
                stopped = "there is no answer to begin with"

    @property
    def model(self) -> str | None:
        return self._bench.model

    @property
    def requests(self) -> int:
        return self._bench.requests

    @property
    def can_chat(self) -> bool:
        """Whether the model answers, in whatever form it had to be asked."""
        opening = self._bench.opening
        return opening is not None and opening.heard.error is None

    @property
    def server(self) -> KnownServer | None:
        return way.recognise(self._bench)

    @property
    def quirks(self) -> Quirks:
        """What was seen; where nothing was, what is known of such servers."""
        known = self.server
        return apply_findings(known.quirks if known else Quirks(), self._learned)

    def _goes_on(self, name: str) -> bool:
        return name == "text" and self.can_chat

    def _learn(self, finding: Finding) -> None:
        self._learned |= finding.learned
        self._bench.quirks = apply_findings(self._bench.quirks, finding.learned)
