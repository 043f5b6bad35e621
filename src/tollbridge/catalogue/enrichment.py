"""Gaps that a list of models leaves, filled from the endpoints behind each: some now, the rest next time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from tollbridge.catalogue.disk import Asked, Kept, Source
from tollbridge.core.errors import BridgeError, InvalidRequest, NotFound, StreamError
from tollbridge.core.models import Model
from tollbridge.gateways.endpoints import enriched, has_gaps

# Models that are asked about in one refresh, and how many at once.
ENRICH_LIMIT = 50
ENRICH_TOGETHER = 8
# What was answered holds for this long (seconds); that a server knows nothing of endpoints, too.
ENRICH_RETRY = 86_400.0


async def fill_gaps(source: Source, key: str | None, models: Sequence[Model], before: Kept | None) -> Kept:
    """The list as it is kept: with what was known before, and with the answers about those asked now."""
    now = time.time()
    asked = dict(before.asked) if before else {}
    refused = before.no_endpoints if before else None
    if refused is None or not 0 <= now - refused < ENRICH_RETRY:
        due = _due(models, asked, now)
        found, knows = await _answers(source, key, due, now) if due else ({}, True)
        asked |= found
        refused = None if knows else now
    listed = {model.id for model in models}
    return Kept(
        base_url=source.base_url,
        fetched=now,
        models=tuple(_filled(model, asked) for model in models),
        no_endpoints=refused,
        asked={name: answer for name, answer in asked.items() if name in listed},
    )


def _due(models: Sequence[Model], asked: Mapping[str, Asked], now: float) -> list[Model]:
    """Those with gaps that nobody asked about yet, then those whose answers are the oldest."""
    times = {name: answer.at for name, answer in asked.items() if now - answer.at >= 0}
    gaps = [model for model in models if has_gaps(model)]
    due = [model for model in gaps if now - times.get(model.id, 0.0) > ENRICH_RETRY]
    return sorted(due, key=lambda model: times.get(model.id, 0.0))[:ENRICH_LIMIT]


def _filled(model: Model, asked: Mapping[str, Asked]) -> Model:
    found = asked[model.id].found if model.id in asked else None
    return enriched(model, found) if found else model


async def _answers(
    source: Source, key: str | None, models: list[Model], now: float
) -> tuple[dict[str, Asked], bool]:
    """What is known of each model, and whether the server knows of endpoints at all.

    The first is asked about alone: a server that knows nothing of endpoints is not asked fifty times.
    """
    try:
        first = await source.endpoints(models[0].id, api_key=key)
    except (NotFound, InvalidRequest, StreamError):
        first = None
    except BridgeError:
        return {}, True
    if first is None:
        return {}, False
    gate = asyncio.Semaphore(ENRICH_TOGETHER)

    async def ask(model: Model) -> Asked | None:
        async with gate:
            try:
                return Asked(now, await source.endpoints(model.id, api_key=key))
            except (NotFound, InvalidRequest, StreamError):
                return Asked(now)
            except BridgeError:
                return None  # it may go better next time, and the list is good without it

    others = await asyncio.gather(*(ask(model) for model in models[1:]))
    found = {model.id: answer for model, answer in zip(models[1:], others, strict=True) if answer}
    return {models[0].id: Asked(now, first), **found}, True
