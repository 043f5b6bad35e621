"""What one running gateway knows, and how it makes an answer; nothing of HTTP."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tollbridge.gateway import demo, prompt, tampering, turns, validation
from tollbridge.gateway.answers import Answer
from tollbridge.gateway.arrivals import Arrivals
from tollbridge.gateway.counting import PrefixCache, count_text
from tollbridge.gateway.events import Step, make_events, number
from tollbridge.gateway.memory import Memory
from tollbridge.gateway.refusals import Refused
from tollbridge.gateway.resources import Resource, make_compaction
from tollbridge.gateway.scenarios import Scenario, find_scenario
from tollbridge.gateway.strict import Seals, check_laws, check_schema
from tollbridge.gateway.turns import Turn

SCENARIO_HEADER = "x-tollbridge-scenario"
_ENDS = frozenset({"response.completed", "response.incomplete"})


# What a caller's own model says to a turn; `None` leaves it to the scripted one.
Model = Callable[[Turn], Answer | None]


class Service:
    def __init__(
        self,
        scenario: str,
        api_key: str | None,
        settings: tampering.Settings,
        model: Model | None = None,
        *,
        strict: bool = False,
    ) -> None:
        find_scenario(scenario)
        self._seals = Seals() if strict else None
        self._model = model
        self.scenario = scenario
        self.settings = settings
        self.memory = Memory()
        self.arrivals = Arrivals()
        self._cache = PrefixCache()
        self._api_key = api_key

    def check_key(self, bearer: str | None) -> None:
        if self._api_key is None:
            return
        if bearer is None:
            raise Refused(
                401,
                "missing_api_key",
                "No API key: send it as `Authorization: Bearer KEY`.",
                param="Authorization",
            )
        if not hmac.compare_digest(bearer.encode(), self._api_key.encode()):
            raise Refused(401, "invalid_api_key", "The API key is wrong.", param="Authorization")

    def choose_scenario(self, headers: Mapping[str, str], body: Any) -> str:
        """The header's, or that of the last user message, or the server's."""
        named = headers.get(SCENARIO_HEADER)
        said = None
        if isinstance(body, Mapping):  # `prompt` is the AI SDK's name for it
            said = prompt.fault_name(body.get("input", body.get("prompt")))
        return named or said or self.scenario

    def is_first(self, *parts: str | bytes) -> bool:
        whole = b"\0".join(part.encode() if isinstance(part, str) else part for part in parts)
        return self.arrivals.is_first(hashlib.sha256(whole).digest())

    def accept(self, body: Mapping[str, Any], *local: Memory) -> Turn:
        if self._seals is not None:
            check_schema(body)
            check_laws(body.get("input"))
        asked = validation.read_create(body)
        if asked.background:
            raise Refused(
                400,
                "unsupported_parameter",
                "background is not offered here: leave it out.",
                param="background",
            )
        turn = turns.accept(asked, [*local, self.memory], self._cache)
        if self._seals is not None:
            self._seals.check(asked.model, turn.items)
        return turn

    def count(self, body: Mapping[str, Any]) -> int:
        return turns.accept(validation.read_create(body), [self.memory]).input_tokens

    def steps(self, turn: Turn, scenario: Scenario, *local: Memory) -> Iterator[Step]:
        """The numbered events of the answer. It is remembered when its end is about to be told."""
        scripted = self._model(turn) if self._model else None
        said = scenario.answer(scripted or demo.answer(turn, scenario.words, self.settings.pace))
        steps = scenario.events(make_events(turn, said, scenario.reasoning), self.settings)
        for step in number(steps) if scenario.numbered else steps:
            if isinstance(step, dict) and step["type"] in _ENDS:
                self._remember(turn, step["response"]["output"], local)
            yield step

    def _remember(self, turn: Turn, output: Sequence[dict[str, Any]], local: Sequence[Memory]) -> None:
        items = (*turn.items, *output)
        self._cache.remember(turn.preface, items)
        if self._seals is not None:
            self._seals.keep(turn.body.model, output)
        kept = [*local, self.memory] if turn.body.store is not False else local
        for memory in kept:
            memory.keep(turn.id, items)

    def compact(self, body: Mapping[str, Any]) -> Resource:
        turn = turns.accept_compaction(validation.read_compact(body), [self.memory])
        summary = " ".join(prompt.describe(turn.items, turn.body.instructions, ()))
        return make_compaction(turn, summary, count_text(summary))
