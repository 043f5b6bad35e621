"""What a server does not take from the requests of one model: learned from refusals, or told by a profile."""

from __future__ import annotations

from typing import Literal

import msgspec

SystemAs = Literal["developer", "system", "instructions", "user"]


class Quirks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The defaults are a server that takes everything the protocol has."""

    # Fields of the body that are left out: `temperature`, `include`, `metadata`…
    without: frozenset[str] = frozenset()
    images: bool = True
    files: bool = True
    # Whether a tool's result may hold more than text, and whether calls may be sent back at all.
    rich_results: bool = True
    calls: bool = True
    # Whether reasoning may be sent back, whether under its id, and in which field its text stands.
    reasoning: bool = True
    reasoning_ids: bool = True
    reasoning_as: Literal["summary", "content"] = "summary"
    # What the system prompt is, and how text alone travels.
    system: SystemAs = "developer"
    text_as: Literal["string", "array"] = "string"
    # Whether tools are named as the protocol does, or as chat completions do.
    tools_as: Literal["flat", "nested"] = "flat"
    # Whether the server counts tokens beforehand (`POST /responses/input_tokens`).
    input_tokens: bool = True
