"""How a server differs from the protocol: what must be put differently for it, or left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Content = Literal["string", "array"]
System = Literal["developer", "system", "instructions", "user"]
Tools = Literal["flat", "nested"]

# What depends on the model as much as on the server, and is kept for each model apart.
OF_MODELS = frozenset({"images", "files", "rich_results", "reasoning", "include", "leave_out"})


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The defaults are a server that takes everything the protocol has.

    What a history may hold has the same names as `history.Target`: a profile says it of a server, a target of
    one request.
    """

    # Whether images and files may be sent at all, and whether the result of a tool may hold them.
    images: bool = True
    files: bool = True
    rich_results: bool = True
    # Whether calls of tools may be sent back; where not, they are told as text.
    calls: bool = True
    # Whether reasoning may be sent back, and whether its encrypted form may be asked for.
    reasoning: bool = True
    include: bool = True
    # How a message of text alone travels, and the system prompt, and tools.
    content: Content = "string"
    system: System = "developer"
    tools: Tools = "flat"
    # Whether `store: false` may be said.
    store: bool = True
    # Fields of the request that are refused.
    leave_out: tuple[str, ...] = ()
    # Whether the server counts tokens (`POST /responses/input_tokens`).
    input_tokens: bool = True
    # By model: the fields above that are otherwise for it.
    models: Mapping[str, Mapping[str, Any]] = {}

    def of(self, model: str) -> Profile:
        """The profile for one model. What either leaves out is left out."""
        own = self.models.get(model)
        if not own:
            return self
        left_out = dict.fromkeys((*self.leave_out, *own.get("leave_out", ())))
        return self.learned({**own, "leave_out": tuple(left_out)})

    def learned(self, fields: Mapping[str, Any]) -> Profile:
        """The profile with these fields; raises `msgspec.ValidationError` where one makes no sense."""
        return msgspec.convert({**msgspec.structs.asdict(self), **fields}, Profile)


STANDARD = Profile()
