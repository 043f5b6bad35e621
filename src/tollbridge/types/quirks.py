"""Quirks: the protocol features that a server does not support for one model, and how they were learned."""

from __future__ import annotations

from typing import Any, Literal

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
        cache_fields: The fields by which prompt caching can be requested: `prompt_cache_key` (OpenAI),
            `caching` (Vercel AI Gateway), `cache_control` (Anthropic's breakpoints). None by default, because
            servers reject fields that they do not know.
        cache_diagnostics: Whether the server explains on request why a prompt was not read from its cache.
        unproven: The fields above whose feature is accepted, but was not seen to reach the model: `images`,
            `calls`… They are sent all the same.
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
    cache_fields: frozenset[str] = frozenset()
    cache_diagnostics: bool = False
    unproven: frozenset[str] = frozenset()


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

    @property
    def changes_requests(self) -> bool:
        """Whether the form of requests must change. Optional fields and token counts do not matter."""
        quirks = msgspec.structs.replace(
            self.quirks,
            input_tokens=True,
            cache_fields=frozenset(),
            cache_diagnostics=False,
            unproven=frozenset(),
        )
        return msgspec.structs.replace(self, quirks=quirks) != LearnedQuirks()


# Where a lesson holds: in one conversation, for one model of a server, or for all models of a server.
Scope = Literal["conversation", "model", "server"]
# What identified the rejected feature: the error's `param`, its `code`, or only the words of its message.
Basis = Literal["parameter", "code", "words"]


class Evidence(msgspec.Struct, frozen=True):
    """The error from which a lesson was learned.

    `message` is the start of its message, without quotations of the request and without secrets.
    """

    basis: Basis
    message: str
    status: int | None = None
    code: str | None = None
    param: str | None = None


class Hypothesis(msgspec.Struct, frozen=True):
    """What an error says about a server. It becomes a `Lesson` when a request that respects it is accepted.

    Attributes:
        feature: A field of `Quirks` or `LearnedQuirks`.
        subject: What was rejected: the field's value, or for `without` the name of a request field. Empty
            for `refused` and `calls_as_text`.
        value: What is used instead: the field's new value, or the list of refused items.
    """

    feature: str
    subject: str
    value: Any
    scope: Scope
    evidence: Evidence


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """A confirmed hypothesis: a server rejected a feature, and accepted the same request without it.

    Attributes:
        model: The model; empty if the lesson holds for all models of the server.
        conversation: A digest of the conversation's start; empty if the lesson holds for all conversations.
        feature: See `Hypothesis`, as for `subject` and `value`.
        learned_at: When it was confirmed last, in seconds since the epoch.
        expires_at: When the feature is tried again.
        confirmations: How often it was confirmed.
        number: The row in the database; 0 if it is not stored.
    """

    base_url: str
    model: str = ""
    conversation: str = ""
    feature: str
    subject: str
    value: Any
    evidence: Evidence
    learned_at: float
    expires_at: float
    confirmations: int = 1
    number: int = 0

    @property
    def scope(self) -> Scope:
        return "conversation" if self.conversation else "model" if self.model else "server"

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What identifies the lesson: a new one with the same key replaces it."""
        return self.base_url, self.model, self.conversation, self.feature, self.subject
