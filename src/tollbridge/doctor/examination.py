"""The examination of a server: the steps in order, and the quirks that they find."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import KnownServer, apply_findings
from tollbridge.doctor import checks, content_checks
from tollbridge.doctor.session import Finding, ProbeLimits, ProbeSession, unknown
from tollbridge.storage.tracker import BillingAccount, UsageTracker
from tollbridge.types.quirks import Quirks

Check = Callable[[ProbeSession], Awaitable[Finding]]

# By name, in order: the title and the check. Checks use the findings of earlier ones.
STEPS: dict[str, tuple[str, Check]] = {
    "reach": ("Reach", checks.check_reach),
    "tls": ("TLS and proxy", checks.check_tls_and_proxy),
    "models": ("Models", checks.check_models),
    "key": ("Key", checks.check_key),
    "text": ("Text", checks.check_text),
    "stream": ("Stream", checks.check_stream),
    "usage": ("Usage", checks.check_usage),
    "arrays": ("Lists of parts", content_checks.check_arrays),
    "system": ("System prompt", content_checks.check_system),
    "tools": ("Tools", content_checks.check_tools),
    "history": ("Calls in the history", content_checks.check_history),
    "parallel": ("Parallel calls", content_checks.check_parallel_calls),
    "images": ("Images", content_checks.check_images),
    "results": ("Images in results", content_checks.check_rich_results),
    "files": ("Files", content_checks.check_files),
    "reasoning": ("Reasoning", content_checks.check_reasoning),
    "encrypted": ("Encrypted reasoning", content_checks.check_encrypted_reasoning),
    "replay": ("Reasoning sent back", content_checks.check_reasoning_replay),
    "parameters": ("Parameters", checks.check_parameters),
    "tokens": ("Token count", checks.check_input_tokens),
    "cancel": ("Cancellation", checks.check_cancellation),
}
# If one of these fails, the remaining steps are skipped.
_REQUIRED_STEPS = ("reach", "text")
# The number of requests to a server without quirks; others receive a few more.
TYPICAL_REQUESTS = 20


class Step(msgspec.Struct, frozen=True):
    """One line of the checklist. A step without a finding is still running."""

    name: str
    title: str
    finding: Finding | None = None
    seconds: float = 0.0


class Examination:
    """Examines one server with one model.

    Args:
        model: The model to use; by default, one is chosen from the server's list.
        limits: The limits on time and requests.
        tracker: Records the usage of the requests.
        payer: The account in the usage records.

    Attributes:
        steps: The finished steps.
    """

    def __init__(
        self,
        client: OpenResponsesClient,
        model: str | None = None,
        limits: ProbeLimits | None = None,
        *,
        tracker: UsageTracker | None = None,
        payer: BillingAccount | None = None,
    ) -> None:
        self._session = ProbeSession(client, model, limits, tracker, payer)
        self._learned: dict[str, object] = {}
        self.steps: list[Step] = []

    async def run(self) -> AsyncIterator[Step]:
        """Run all steps. Yield each step twice: when it starts, and with its finding when it ends."""
        skip_reason = ""
        for name, (title, check) in STEPS.items():
            yield Step(name, title)
            started = time.monotonic()
            finding = unknown(f"Not tested: {skip_reason}.") if skip_reason else await check(self._session)
            self._learn(finding)
            step = Step(name, title, finding, time.monotonic() - started)
            self.steps.append(step)
            yield step
            if name in _REQUIRED_STEPS and finding.verdict != "well" and not self._can_continue(name):
                skip_reason = "the server does not respond"

    @property
    def model(self) -> str | None:
        return self._session.model

    @property
    def requests(self) -> int:
        return self._session.requests

    @property
    def can_chat(self) -> bool:
        """Whether the model responds, in any form of the request."""
        first_answer = self._session.first_answer
        return first_answer is not None and first_answer.reply.error is None

    @property
    def server(self) -> KnownServer | None:
        """The known server that this is, or `None`."""
        return checks.recognize(self._session)

    @property
    def quirks(self) -> Quirks:
        """The measured quirks, and the shipped ones of the known server for all others."""
        server = self.server
        return apply_findings(server.quirks if server else Quirks(), self._learned)

    def _can_continue(self, name: str) -> bool:
        return name == "text" and self.can_chat

    def _learn(self, finding: Finding) -> None:
        self._learned |= finding.learned
        self._session.quirks = apply_findings(self._session.quirks, finding.learned)
