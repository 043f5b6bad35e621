"""Reasoning that must go back to the model that did it: what proves it, and for whom it holds."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2s
from typing import Any

import msgspec

from tollbridge.types.messages import DataPart
from tollbridge.types.text import write_json

# The key of a thinking part's metadata that is ours; the others are the gateway's own and go back untouched.
BOUND_KEY = "_tollbridge"
# The data part that carries all reasoning of an answer, for editors that keep data better than thoughts.
PACK_MIME = "application/vnd.tollbridge.reasoning+json"


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who reasoned. Proofs hold for one model at one gateway; `gateway` is a digest of its address."""

    model: str
    gateway: str

    @classmethod
    def of(cls, model: str, base_url: str) -> Origin:
        return cls(model, blake2s(base_url.encode(), digest_size=6).hexdigest())


class BoundProof(msgspec.Struct, frozen=True, omit_defaults=True):
    """What we add to metadata: the origin, and whether it belongs to a call or is text without a proof."""

    model: str
    gateway: str
    call: str | None = None
    plain: bool = False

    @property
    def origin(self) -> Origin:
        return Origin(self.model, self.gateway)


class ReasoningBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """One block of reasoning: its text, its proof, and its place: the call it stood before, if there was one,
    and how many characters of the answer stood before it, where that is known."""

    text: str = ""
    id: str | None = None
    proof: Mapping[str, Any] | None = None
    before: str | None = None
    after: int | None = None


class ReasoningPack(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reasoning of one answer, and what its calls carry. `said` is how many characters its text had;
    older packs do not know."""

    model: str
    gateway: str
    blocks: tuple[ReasoningBlock, ...] = ()
    calls: Mapping[str, Mapping[str, Any]] = {}
    said: int | None = None

    @property
    def origin(self) -> Origin:
        return Origin(self.model, self.gateway)


def bind(origin: Origin, proof: Mapping[str, Any] | None, *, call: str | None = None) -> dict[str, Any]:
    """Metadata that says whose it is. Without a proof, the text itself is what goes back."""
    plain = not proof and call is None
    return {
        **(proof or {}),
        BOUND_KEY: msgspec.to_builtins(BoundProof(origin.model, origin.gateway, call, plain)),
    }


def unbind(metadata: Mapping[str, Any] | None) -> tuple[BoundProof | None, dict[str, Any]]:
    """What we added, and what is the gateway's own."""
    own = dict(metadata or {})
    try:
        return msgspec.convert(own.pop(BOUND_KEY, None), BoundProof), own
    except msgspec.ValidationError:
        return None, own


def digest(proof: Mapping[str, Any]) -> str:
    """A name for a proof, short enough to remember thousands."""
    return blake2s(write_json(proof).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def is_marker(part: object) -> bool:
    """Whether a part is the pack of an answer's reasoning, which nobody reads but us."""
    return isinstance(part, DataPart) and part.mime == PACK_MIME


def read_reasoning_pack(data: bytes) -> ReasoningPack | None:
    try:
        return msgspec.json.decode(data, type=ReasoningPack)
    except msgspec.MsgspecError:
        return None
