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
    """`models` holds, by model, the quirks that are its own."""

    quirks: Quirks = Quirks()
    models: Mapping[str, Mapping[str, Any]] = {}

    @classmethod
    def measured(cls, model: str, quirks: Quirks) -> Profile:
        """What was seen with one model, shared out between its server and itself."""
        fields = msgspec.structs.asdict(quirks)
        server = {name: value for name, value in fields.items() if name in OF_SERVERS}
        own = {name: value for name, value in fields.items() if name not in OF_SERVERS}
        server["without"] = quirks.without & REFUSED_BY_SERVERS
        own["without"] = quirks.without - REFUSED_BY_SERVERS
        return cls(Quirks(**server), {model: own})

    def of(self, model: str) -> Quirks:
        """The quirks for one model. What either leaves out is left out."""
        own = self.models.get(model)
        if not own:
            return self.quirks
        without = self.quirks.without.union(own.get("without", ()))
        return learned(self.quirks, {**own, "without": without})


def learned(quirks: Quirks, fields: Mapping[str, Any]) -> Quirks:
    """The quirks with these fields; raises `msgspec.ValidationError` where one makes no sense."""
    return msgspec.convert({**msgspec.structs.asdict(quirks), **fields}, Quirks)
