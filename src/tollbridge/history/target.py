"""What the model and the server at the other end take, as far as a history is concerned."""

from __future__ import annotations

import msgspec

from tollbridge.core.reasoning import Origin


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are a server that takes everything the protocol has.

    `origin` is who will read the history: reasoning of anyone else is left out. Where it is `None`, reasoning
    that has a proof is taken to be the reader's own. `refused` are the proofs (by `digest`) and the files
    (by `fingerprint`) that this reader has turned down before, `spoken` the ids of calls that it takes as
    text alone.
    """

    images: bool = True
    files: bool = True
    # Whether the result of a tool may hold more than text, and whether calls may be sent at all.
    rich_results: bool = True
    calls: bool = True
    reasoning: bool = True
    # Whether there is any role for a system prompt.
    system: bool = True
    origin: Origin | None = None
    refused: frozenset[str] = frozenset()
    spoken: frozenset[str] = frozenset()
