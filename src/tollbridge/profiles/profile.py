"""What is known of one server: its quirks, and those that only some of its models have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tollbridge.core.quirks import Quirks

# What depends on the server alone; everything else may be otherwise for its next model.
OF_SERVERS = frozenset({"calls", "system", "text_as", "tools_as", "input_tokens"})
# Of the fields that are left out, those that a server refuses whatever the model.
REFUSED_BY_SERVERS = frozenset({"store"})


class Profile(msgspec.Struct, frozen=True):
    """`models` holds, by model, the quirks that are its own; `said` names those that are said of them all."""

    quirks: Quirks = Quirks()
    models: Mapping[str, Mapping[str, Any]] = {}
    said: frozenset[str] = frozenset(Quirks.__struct_fields__)

    @classmethod
    def measured(cls, model: str, quirks: Quirks) -> Profile:
        """What was seen with one model, shared out between its server and itself."""
        fields = msgspec.structs.asdict(quirks)
        server = {name: value for name, value in fields.items() if name in OF_SERVERS}
        own = {name: value for name, value in fields.items() if name not in OF_SERVERS}
        server["without"] = quirks.without & REFUSED_BY_SERVERS
        own["without"] = quirks.without - REFUSED_BY_SERVERS
        return cls(Quirks(**server), {model: own}, frozenset(server))

    def of(self, model: str, known: Quirks | None = None) -> Quirks:
        """The quirks for one model. What either leaves out is left out; what neither speaks of is as it is
        `known` to be with such servers."""
        known, own = known or Quirks(), self.models.get(model, {})
        said = {name: getattr(self.quirks, name) for name in self.said}
        server = self.quirks.without
        without = server.union(own["without"]) if "without" in own else server | known.without
        return learned(known, {**said, **own, "without": without})


def learned(quirks: Quirks, fields: Mapping[str, Any]) -> Quirks:
    """The quirks with these fields; raises `msgspec.ValidationError` where one makes no sense."""
    return msgspec.convert({**msgspec.structs.asdict(quirks), **fields}, Quirks)
