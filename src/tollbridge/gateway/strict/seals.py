"""Reasoning that must come back as it was given: sealed for one model, and before the call it led to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tollbridge.gateway.refusals import Refused

Item = Mapping[str, Any]
_Value = TypeVar("_Value")
# Sealed thoughts and calls remembered; the oldest are forgotten, and then taken on trust no longer.
SEALS_LIMIT = 10_000


class _Sealed(msgspec.Struct, frozen=True):
    model: str
    item: Item


class Seals:
    """What the gateway sealed. Kept only where `include` asked for encrypted content."""

    def __init__(self) -> None:
        # By encrypted content and id: the same thought, thought again, has the same seal.
        self._thoughts: dict[str, dict[str, _Sealed]] = {}
        self._calls: dict[str, _Sealed] = {}  # the thought each call followed from, by the call's id

    def keep(self, model: str, output: Sequence[Item]) -> None:
        thought: _Sealed | None = None
        for item in output:
            if item["type"] == "reasoning":
                thought = _Sealed(model, item) if item.get("encrypted_content") else None
                if thought is not None:
                    alike = self._thoughts.get(item["encrypted_content"], {})
                    _put(self._thoughts, item["encrypted_content"], {**alike, item["id"]: thought})
            elif item["type"] == "function_call" and thought is not None:
                _put(self._calls, item["call_id"], thought)

    def check(self, model: str, items: Sequence[Item]) -> None:
        latest: Item | None = None
        for index, item in enumerate(items):
            match item["type"]:
                case "reasoning":
                    self._check_thought(model, item, f"input[{index}]")
                    latest = item
                case "function_call":
                    self._check_call(model, item, latest, f"input[{index}]")
                case "function_call_output":
                    pass
                case _:
                    latest = latest if item.get("role") == "assistant" else None

    def _check_thought(self, model: str, item: Item, param: str) -> None:
        sealed = item.get("encrypted_content")
        if sealed is None:
            return
        known = [one for one in self._thoughts.get(sealed, {}).values() if one.model == model]
        if not known:
            message = (
                f"The encrypted content of {param} could not be verified: it was not sealed for {model}."
            )
            raise Refused(400, "invalid_encrypted_content", message, param=f"{param}.encrypted_content")
        if not any(_is_same(item, one.item) for one in known):
            message = f"The reasoning in {param} is not as it was given."
            raise Refused(400, "invalid_encrypted_content", message, param=param)

    def _check_call(self, model: str, item: Item, latest: Item | None, param: str) -> None:
        thought = self._calls.get(item["call_id"])
        if thought is None or thought.model != model:
            return
        if latest is None or latest.get("encrypted_content") != thought.item["encrypted_content"]:
            message = f"{param} is a function_call that was provided without its required 'reasoning' item."
            raise Refused(400, "reasoning_missing", message, param=param)


def _is_same(item: Item, given: Item) -> bool:
    return item.get("summary") == given["summary"] and item.get("id") in (None, given["id"])


def _put(known: dict[str, _Value], key: str, value: _Value) -> None:
    while len(known) >= SEALS_LIMIT:
        known.pop(next(iter(known)))
    known[key] = value
