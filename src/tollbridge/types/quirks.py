"""Quirks: the protocol features that a server does not support for one model."""

from __future__ import annotations

from typing import Literal

import msgspec

# The field that holds the text of reasoning.
ReasoningShape = Literal["summary", "content"]
SystemAs = Literal["developer", "system", "instructions", "user"]


class Quirks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a server accepts in the requests of one model. The defaults describe a fully conforming server.

    Attributes:
        without: Request fields that must not be sent: `temperature`, `include`, `metadata`…
        images: Whether images are accepted.
        files: Whether files are accepted.
        rich_results: Whether tool results can contain images and files, not only text.
        calls: Whether tool calls and their results are accepted in the input.
        reasoning: Whether reasoning is accepted in the input.
        reasoning_ids: Whether reasoning in the input can have an id.
        reasoning_as: The field that holds the text of reasoning in the input, unless it came in `content`.
        system: How the system prompt is sent: as a message with this role, or in the field `instructions`.
        text_as: Whether a message of only text is a string or an array of content parts.
        tools_as: Whether tools are declared as in OpenResponses (flat) or as in Chat Completions (nested).
        input_tokens: Whether the server counts tokens (`POST /responses/input_tokens`).
    """

    without: frozenset[str] = frozenset()
    images: bool = True
    files: bool = True
    rich_results: bool = True
    calls: bool = True
    reasoning: bool = True
    reasoning_ids: bool = True
    reasoning_as: ReasoningShape = "summary"
    system: SystemAs = "developer"
    text_as: Literal["string", "array"] = "string"
    tools_as: Literal["flat", "nested"] = "flat"
    input_tokens: bool = True


class LearnedQuirks(msgspec.Struct, frozen=True):
    """The quirks of one model at one gateway, with the items that the gateway has refused.

    Attributes:
        quirks: What the server accepts; applies to every request.
        refused: Reasoning (by `messages.digest` of its proof) and files (by `media.fingerprint`) that the
            gateway refused. They are not sent again; new ones are.
        calls_as_text: The ids of tool calls that the gateway accepts only as text.
    """

    quirks: Quirks = Quirks()
    refused: frozenset[str] = frozenset()
    # Recordings of turns contain this field as "spoken".
    calls_as_text: frozenset[str] = msgspec.field(default=frozenset(), name="spoken")
