"""The first question of all, put in other ways where it is refused: everything else rests on its answer."""

from __future__ import annotations

from typing import Any

import msgspec

from tollbridge.core.errors import BridgeError
from tollbridge.doctor.bench import Bench, Heard

HELLO = "Say hello in one short sentence."
# Other ways to put the plainest request, for a server that refuses it; each is a guess at the reason.
_OTHERWISE: tuple[dict[str, Any], ...] = (
    {"without": frozenset({"store"})},
    {"text_as": "array"},
    {"without": frozenset({"max_output_tokens"})},
    {"without": frozenset({"store", "max_output_tokens"})},
    {"text_as": "array", "without": frozenset({"store", "max_output_tokens"})},
)


class Opening(msgspec.Struct, frozen=True):
    """The answer, how it had to be asked for, and why not as usual."""

    heard: Heard
    quirks: dict[str, Any]
    refusal: BridgeError | None


async def opening(bench: Bench) -> Opening:
    first = await bench.ask(bench.question(HELLO))
    if first.refusal is None:
        return Opening(first, {}, None)
    for quirks in _OTHERWISE:
        heard = await bench.ask(bench.question(HELLO), **quirks)
        if heard.refusal is None:
            return Opening(heard, quirks, first.error)
    return Opening(first, {}, first.error)
