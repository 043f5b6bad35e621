"""Reasoning metadata: the proof of a reasoning block, and the model and gateway for which it is valid.

A proof is what a provider returns with reasoning and requires back unchanged: a signature or encrypted
content. It is valid only for the model at the gateway that issued it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2s
from typing import Any

import msgspec

from tollbridge.types.messages import DataPart
from tollbridge.types.text import write_json

# The key that Tollbridge adds to the metadata of a thinking part. All other keys belong to the gateway and
# are sent back unchanged.
BOUND_KEY = "_tollbridge"
# The mime type of the data part that holds all reasoning of an answer. Editors preserve data parts better
# than thinking parts.
PACK_MIME = "application/vnd.tollbridge.reasoning+json"


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model and the gateway that produced reasoning. `gateway` is a digest of the base URL."""

    model: str
    gateway: str

    @classmethod
    def of(cls, model: str, base_url: str) -> Origin:
        return cls(model, blake2s(base_url.encode(), digest_size=6).hexdigest())


class BoundProof(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value under `BOUND_KEY` in metadata: the origin of the reasoning.

    Attributes:
        call: The id of the tool call that the proof belongs to, if it does not belong to reasoning.
        plain: Whether the reasoning is text without a proof.
    """

    model: str
    gateway: str
    call: str | None = None
    plain: bool = False

    @property
    def origin(self) -> Origin:
        return Origin(self.model, self.gateway)


class ReasoningBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """One block of reasoning and its position in the answer.

    Attributes:
        text: The text of the reasoning.
        id: The gateway's id of the block.
        proof: The metadata to send back.
        before: The id of the tool call that follows the block, if one does.
        after: The number of characters of the answer that precede the block, if known.
    """

    text: str = ""
    id: str | None = None
    proof: Mapping[str, Any] | None = None
    before: str | None = None
    after: int | None = None


class ReasoningPack(msgspec.Struct, frozen=True, omit_defaults=True):
    """All reasoning of one answer.

    Attributes:
        model: The model that produced it.
        gateway: The digest of the gateway's base URL.
        blocks: The reasoning blocks in their order.
        calls: The metadata of tool calls, by call id.
        said: The number of characters of the answer's text; `None` in packs of older versions.
    """

    model: str
    gateway: str
    blocks: tuple[ReasoningBlock, ...] = ()
    calls: Mapping[str, Mapping[str, Any]] = {}
    said: int | None = None

    @property
    def origin(self) -> Origin:
        return Origin(self.model, self.gateway)


def bind(origin: Origin, proof: Mapping[str, Any] | None, *, call: str | None = None) -> dict[str, Any]:
    """Return metadata with the origin added. Without a proof, only the text of the reasoning is sent back."""
    plain = not proof and call is None
    return {
        **(proof or {}),
        BOUND_KEY: msgspec.to_builtins(BoundProof(origin.model, origin.gateway, call, plain)),
    }


def unbind(metadata: Mapping[str, Any] | None) -> tuple[BoundProof | None, dict[str, Any]]:
    """Split metadata into the origin that `bind` added and the gateway's own proof."""
    proof = dict(metadata or {})
    try:
        return msgspec.convert(proof.pop(BOUND_KEY, None), BoundProof), proof
    except msgspec.ValidationError:
        return None, proof


def digest(proof: Mapping[str, Any]) -> str:
    """Return a short digest that identifies a proof."""
    return blake2s(write_json(proof).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def is_marker(part: object) -> bool:
    """Return whether a part is a reasoning pack, which only Tollbridge reads."""
    return isinstance(part, DataPart) and part.mime == PACK_MIME


def read_reasoning_pack(data: bytes) -> ReasoningPack | None:
    """Decode a reasoning pack. Return `None` if the data is invalid."""
    try:
        return msgspec.json.decode(data, type=ReasoningPack)
    except msgspec.MsgspecError:
        return None
