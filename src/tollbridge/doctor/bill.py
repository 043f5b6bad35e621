"""What an examination costs, written into the usage ledger: it asks models, as any turn does."""

from __future__ import annotations

import time

from tollbridge.core.errors import BridgeError
from tollbridge.core.events import Finished
from tollbridge.usage import Outcome, Payer, Record, UsageTracker


class Bill:
    """Of one question, from when it is put. The first ending counts."""

    def __init__(self, tracker: UsageTracker, payer: Payer, model: str) -> None:
        self._tracker = tracker
        self._payer = payer
        self._model = model
        self._started = time.time()
        self._clock = time.monotonic()
        self._ticket = tracker.begin(model, payer, self._started)
        self._closed = False

    def close(
        self, outcome: Outcome, finished: Finished | None = None, error: BridgeError | None = None
    ) -> None:
        if self._closed:
            return
        self._closed = True
        self._tracker.record(
            Record(
                model=self._model,
                outcome=outcome,
                usage=finished.usage if finished else error.usage if error else None,
                started=self._started,
                duration=time.monotonic() - self._clock,
                finish_reason=finished.reason if finished else None,
                error=error.kind if error else None,
                payer=self._payer,
            ),
            self._ticket,
        )
