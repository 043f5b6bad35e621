"""The walk across and back: make the history legal, translate, request, adapt, account."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import msgspec

from tollbridge.core.endings import shortfall, silence
from tollbridge.core.errors import BridgeError
from tollbridge.core.events import Event
from tollbridge.core.messages import ChatRequest, Part, ThinkingPart
from tollbridge.core.models import Capabilities
from tollbridge.core.reasoning import is_marker
from tollbridge.core.usage import Usage
from tollbridge.crossing import Crossing
from tollbridge.healing import Learned, Lessons, RememberedLessons
from tollbridge.store.waiting import settled
from tollbridge.usage import Account, Payer, UsageTracker

if TYPE_CHECKING:
    from tollbridge.estimator import Preflight
    from tollbridge.toll import Toll

log = logging.getLogger(__name__)

# Seconds a turn that was stopped waits for its row: the editor waits for the turn.
STOPPING = 0.05


class Gateway(Protocol):
    """What the bridge needs of a client: where it talks to, and events, one list a network read."""

    @property
    def base_url(self) -> str: ...

    def batches(self, request: ChatRequest, *, api_key: str | None = None) -> AsyncGenerator[list[Event]]: ...


class Turn(msgspec.Struct, frozen=True):
    """How a turn ended. `first` and `duration` are seconds; `changes` says what was mended on
    the way, in words, and `counts` how often, by kind; `warning` that the answer stopped before its end, or
    that the prompt was near what fits."""

    usage: Usage | None
    context: Usage | None
    finish_reason: str | None
    response_id: str | None
    model: str | None
    first: float | None
    duration: float
    changes: tuple[str, ...] = ()
    counts: Mapping[str, int] = {}
    preflight: Preflight | None = None
    warning: str | None = None


class Bridge:
    """Carries turns between an editor and a gateway. Turns under way at once share the tracker, the toll, and
    what was learned of the gateway."""

    def __init__(
        self,
        gateway: Gateway,
        tracker: UsageTracker | None = None,
        toll: Toll | None = None,
        *,
        account: Payer | None = None,
        lessons: Lessons | None = None,
    ) -> None:
        self._gateway = gateway
        self._payer = account or Payer()
        self._toll = toll
        self._lessons = lessons or RememberedLessons()
        self.tracker = tracker or UsageTracker()

    async def answer(
        self,
        request: ChatRequest,
        report: Callable[[list[Part]], object],
        *,
        api_key: str | None = None,
        window: int | None = None,
        abilities: Capabilities | None = None,
        learned: Learned | None = None,
    ) -> Turn:
        """Report the parts of the answer as they come, a list for each network read, and say how it ended.

        A failure is raised when everything before it has been reported; an answer that stopped before its
        first word is one. Cancelling hangs up. `window` is the most input tokens the model takes, and
        `abilities` what it can do, where that is known: a prompt near the window is warned of, and what the
        model cannot take is replaced by a note. `learned` is what the lessons say of the server, where it was
        recalled already.
        """
        crossing = Crossing(request, self._gateway.base_url, self._lessons, abilities, learned)
        preflight = self._toll.before(crossing.sent, window, api_key) if self._toll is not None else None
        account = Account(request.model, self.tracker, self._payer)
        said: list[Part] = []  # only where something is learned from it

        def tell(parts: list[Part]) -> None:
            if parts:
                report(parts)
            if self._toll is not None:
                said.extend(part for part in parts if not is_marker(part))

        try:
            await settled(account.ticket)
            await self._cross(crossing, account, tell, api_key)
        except asyncio.CancelledError:
            await settled(account.close("cancelled"), within=STOPPING)
            raise
        except BridgeError as error:
            await settled(account.close("failed", error))
            if self._toll is not None:
                await self._toll.refused(crossing.sent, error)
            raise
        else:
            await settled(account.close("completed"))
        finally:
            await settled(account.close("failed"))  # whatever else happened, the editor's own errors too
        turn = _turn(account, crossing, preflight)
        if self._toll is None:
            return turn
        await self._toll.after(crossing.sent, turn.context, said, preflight)
        warnings = turn.warning, self._toll.warning(turn.context, window, preflight)
        return msgspec.structs.replace(turn, warning=" ".join(filter(None, warnings)) or None)

    async def _cross(
        self, crossing: Crossing, account: Account, tell: Callable[[list[Part]], None], api_key: str | None
    ) -> None:
        """Ask, and ask once more where the refusal can be cured: only while nothing has been said."""
        while True:
            answer = crossing.answer()
            spoken = False
            try:
                async with aclosing(self._gateway.batches(crossing.sent, api_key=api_key)) as batches:
                    async for batch in batches:
                        account.see(batch)
                        crossing.begun = True
                        parts = answer.take(batch)
                        spoken = spoken or any(map(_is_said, parts))
                        tell(parts)
                failure: BridgeError | None = None
            except BridgeError as error:
                if crossing.heal(error):
                    continue
                failure = error
            parts, failure = answer.close(failure)
            tell(parts)
            crossing.note(answer.changes)
            if failure is None and account.finished is not None and not (spoken or any(map(_is_said, parts))):
                failure = silence(account.finished, crossing.sent.max_output_tokens)
            if failure is not None:
                raise failure
            return


def _is_said(part: Part) -> bool:
    """Whether a part is of the answer, and not of the way there."""
    return not (isinstance(part, ThinkingPart) or is_marker(part))


def _turn(account: Account, crossing: Crossing, preflight: Preflight | None) -> Turn:
    finished = account.finished
    return Turn(
        usage=finished.usage if finished else None,
        context=(finished.context or finished.usage) if finished else None,
        finish_reason=finished.reason if finished else None,
        response_id=finished.response_id if finished else None,
        model=finished.model if finished else None,
        first=account.first,
        duration=account.duration,
        changes=crossing.changes,
        counts=crossing.counts,
        preflight=preflight,
        warning=shortfall(finished) if finished else None,
    )
