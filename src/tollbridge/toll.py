"""The toll of a turn: what it will come to before, what it came to after, and what is learned from the two.

It warns and learns; it never refuses a request and never delays one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from tollbridge.core.errors import BridgeError, ContextTooLong
from tollbridge.core.json import write_json
from tollbridge.core.messages import ChatRequest, DataPart, Part
from tollbridge.core.usage import Usage
from tollbridge.estimator import NEAR, HybridTokenEstimator, Preflight, warn
from tollbridge.store.waiting import WITHIN, settled

log = logging.getLogger(__name__)

# Answers of a gateway that has no such route. Any other failure is about that one question.
CANNOT_COUNT = frozenset({404, 405, 501})


class Counter(Protocol):
    """A gateway that can be asked how many tokens a request would come to."""

    async def input_tokens(self, request: ChatRequest, *, api_key: str | None = None) -> int: ...


class Toll:
    """Joins an estimator to turns. With a `counter`, the gateway is asked once for every new conversation, in
    the background; one that cannot say is not asked again.

    What is learned is written by a thread of its own, in order: the file may be another process's just now.
    `behind` is for a program that lives for a few turns: a prompt that is surely short is not estimated
    beforehand, for a vocabulary takes its time to load, and no turn waits until its lesson is learned.
    """

    def __init__(
        self, estimator: HybridTokenEstimator, counter: Counter | None = None, *, behind: bool = False
    ) -> None:
        self.estimator = estimator
        self._counter = counter
        self._behind = behind
        self._asking: set[asyncio.Task[None]] = set()
        self._learner = ThreadPoolExecutor(1, thread_name_prefix="toll")

    def before(
        self, request: ChatRequest, window: int | None, api_key: str | None = None
    ) -> Preflight | None:
        """What the prompt will come to, with a warning in the log where it is near or over the window."""
        if self._behind and (window is None or _is_surely_short(request, window)):
            return None
        preflight = self.estimator.preflight(request, window)
        if preflight.warning is not None:
            log.warning("%s", preflight.warning)
        if self._counter is not None and preflight.estimate.method == "estimated":
            task = asyncio.create_task(self._ask(self._counter, request, api_key))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return preflight

    def warning(self, usage: Usage | None, window: int | None, preflight: Preflight | None) -> str | None:
        """Of a turn that has ended: by what the gateway reported, and by the estimate where it did not."""
        if usage is not None and usage.input_tokens:
            return warn(usage.input_tokens, window)
        return preflight.warning if preflight is not None else None

    async def after(
        self,
        request: ChatRequest,
        usage: Usage | None,
        answer: Iterable[Part],
        preflight: Preflight | None = None,
    ) -> None:
        """`usage` is that of the last step: the one whose input was this request."""
        if usage is not None:
            parts, told = tuple(answer), preflight.estimate if preflight else None
            await self._learn(lambda: self.estimator.calibrate_request(request, usage, parts, told))

    async def refused(self, request: ChatRequest, error: BridgeError) -> None:
        """“Too long” teaches: the numbers in it are the truth for this prompt."""
        if isinstance(error, ContextTooLong):
            await self._learn(lambda: self.estimator.refused(request, error))

    async def aclose(self, within: float = WITHIN) -> None:
        """Stop asking, and keep what was learned, unless that takes too many seconds."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        await settled(self._learner.submit(lambda: None), within)  # which comes last
        self._learner.shutdown(wait=False)

    async def _learn(self, act: Callable[[], object]) -> None:
        """Usually it is done when this returns; a store that another process holds delays nobody for long."""
        learning = self._learner.submit(act)
        if not self._behind:
            await settled(learning)

    async def _ask(self, counter: Counter, request: ChatRequest, api_key: str | None) -> None:
        try:
            tokens = await counter.input_tokens(request, api_key=api_key)
        except BridgeError as error:
            if error.status in CANNOT_COUNT:
                log.info("The gateway does not count tokens (%s); it is not asked again.", error.status)
                self._counter = None
        else:
            await self._learn(lambda: self.estimator.counted(request, tokens))


def _is_surely_short(request: ChatRequest, window: int) -> bool:
    """Whatever the vocabulary, a token of text is a byte at least; a picture is as many as it likes."""
    parts = (part for message in request.messages for part in message.parts)
    if any(isinstance(part, DataPart) for part in parts):
        return False
    return len(write_json((request.messages, request.tools)).encode()) < NEAR * window
