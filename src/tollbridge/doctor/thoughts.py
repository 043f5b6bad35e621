"""Reasoning: by what name it is told, whether it comes encrypted, and whether it may be sent back."""

from __future__ import annotations

from typing import Any

from tollbridge.core.events import ReasoningEnded
from tollbridge.core.messages import ThinkingPart
from tollbridge.core.reasoning import Origin, bind
from tollbridge.doctor.bench import Bench, Heard
from tollbridge.doctor.findings import Finding, amiss, not_seen, reason, well
from tollbridge.doctor.tools import SUNNY, WEATHER, a_round, unsigned
from tollbridge.gateways.openresponses.wire import EVENTS

_THINK = "Think briefly: what is 17 times 3?"
# How reasoning may have to be sent back, and what it means.
_WAYS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"reasoning_ids": True, "reasoning_as": "summary"}, ""),
    ({"reasoning_ids": False, "reasoning_as": "summary"}, "without its id"),
    ({"reasoning_ids": True, "reasoning_as": "content"}, "as content"),
    ({"reasoning_ids": False, "reasoning_as": "content"}, "as content and without its id"),
)


async def reasoning(bench: Bench) -> Finding:
    question = bench.question(_THINK, reasoning_effort="low")
    heard = await bench.ask(question, without=bench.without("include"))
    if heard.refusal is not None:
        return amiss(
            f"A reasoning effort is refused: {reason(heard.refusal)}",
            "None is sent to this model.",
            without=bench.without("reasoning", "include"),
        )
    if heard.error is not None:
        return not_seen(heard.error)
    bench.thinking = heard
    names = {str(event.get("type")) for event in heard.wire_events()}
    spoken = sorted(name for name in names if EVENTS.get(name) == "reasoning")
    if not spoken:
        return well("A reasoning effort is accepted; no reasoning was shown.")
    return well(f"Reasoning is told as {' and '.join(spoken)}.")


async def encrypted(bench: Bench) -> Finding:
    if "reasoning" in bench.quirks.without:
        return well("Not needed: the model takes no reasoning effort.")
    heard = await bench.ask(bench.question(_THINK, reasoning_effort="low"))
    if heard.refusal is not None:
        return amiss(
            f"Encrypted reasoning is not given: {reason(heard.refusal)}",
            "It is not asked for.",
            without=bench.without("include"),
        )
    if heard.error is not None:
        return not_seen(heard.error)
    bench.thinking = heard
    if "encrypted_content" in (_proof(heard) or {}):
        return well("Encrypted reasoning is given where it is asked for.")
    return well("Encrypted reasoning may be asked for; none came.")


async def replayed(bench: Bench) -> Finding:
    """Within a round of tools a model wants its own reasoning back: with its proof, or as plain text."""
    heard = bench.thinking
    if heard is None or not (heard.reasoning or _proof(heard)):
        return well("Not needed: no reasoning was shown.")
    origin = Origin.of(bench.model or "", bench.client.base_url)
    thought = ThinkingPart(heard.reasoning, metadata=bind(origin, _proof(heard)))
    told = a_round(bench, SUNNY, thought=thought)
    question = bench.question(*told, tools=(WEATHER,), reasoning_effort="low")
    refusal = None
    for quirks, meaning in _WAYS:
        again = await bench.ask(question, reasoning=True, **quirks)
        if again.refusal is not None:
            refusal = refusal or again.error
            if again.error is not None and bench.is_of_this_call(again.error, question):
                return unsigned(again.error)
            continue
        if again.error is not None:
            return not_seen(again.error)
        if refusal is None:
            return well("Reasoning is accepted when it is sent back.", reasoning=True, **quirks)
        only = f"Reasoning is accepted back only {meaning}: {reason(refusal)}"
        return amiss(only, "It is sent back so.", reasoning=True, **quirks)
    why = reason(refusal) if refusal is not None else ""
    return amiss(
        f"Reasoning is refused when it is sent back: {why}",
        "It is not sent back, and its proof not asked for.",
        reasoning=False,
        without=bench.without("include"),
    )


def _proof(heard: Heard) -> dict[str, Any] | None:
    proofs = [event.metadata for event in heard.events if isinstance(event, ReasoningEnded)]
    return next((dict(proof) for proof in proofs if proof), None)
