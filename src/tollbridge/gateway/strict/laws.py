"""The laws no schema can say, each of which some provider enforces.

a question        at least one user message
nothing blank     no message without words or files
legal ids         of calls too: letters, digits, _ and -
one id, one item  no item twice
arguments         the JSON text of an object
adjacency         results follow their calls at once, in the order of the calls
consequence       reasoning is followed by what the model said or called
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.gateway.refusals import Refused

Item = Mapping[str, Any]
_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def check_laws(given: str | Sequence[Item] | None) -> None:
    """`given` is the `input` of a request that keeps to the schema."""
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given or []
    if not any(item.get("role") == "user" for item in items):
        raise Refused(400, "missing_user_message", "input holds no message of the user.", param="input")
    for index, item in enumerate(items):
        _check_words(item, f"input[{index}]")
        _check_call(item, f"input[{index}]")
        _check_consequence(items, index)
    _check_identity(items)
    _check_adjacency(items)


def _check_identity(items: Sequence[Item]) -> None:
    known: set[str] = set()
    for index, item in enumerate(items):
        id_ = item.get("id")
        if id_ in known:
            message = (
                f"Duplicate item found with id {id_}. Remove duplicate items from your input and try again."
            )
            raise Refused(400, "duplicate_item", message, param=f"input[{index}].id")
        if id_:
            known.add(id_)


def _check_words(item: Item, param: str) -> None:
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, str | list):
        return
    parts = [{"text": content}] if isinstance(content, str) else content
    words = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    if not words.strip() and not any(part.get("type") in ("input_image", "input_file") for part in parts):
        raise Refused(400, "empty_message", f"{param}.content says nothing.", param=f"{param}.content")


def _check_call(item: Item, param: str) -> None:
    call_id = item.get("call_id")
    if isinstance(call_id, str) and not _LEGAL.match(call_id):
        message = f"{param}.call_id {call_id[:80]!r} has characters other than letters, digits, _ and -."
        raise Refused(400, "invalid_value", message, param=f"{param}.call_id")
    if item.get("type") != "function_call":
        return
    try:
        msgspec.json.decode(item["arguments"], type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        message = f"{param}.arguments is not the JSON text of an object: {error}."
        raise Refused(400, "invalid_arguments", message, param=f"{param}.arguments") from error


def _check_consequence(items: Sequence[Item], index: int) -> None:
    if items[index].get("type") != "reasoning":
        return
    after = next((item for item in items[index:] if item.get("type") != "reasoning"), {})
    if after.get("type") != "function_call" and after.get("role") != "assistant":
        message = f"input[{index}] is reasoning that was provided without its required following item."
        raise Refused(400, "reasoning_without_following_item", message, param=f"input[{index}]")


def _check_adjacency(items: Sequence[Item]) -> None:
    """While calls wait, only more calls, reasoning and their results may come; results in turn."""
    waiting: list[str] = []
    answering = False
    for index, item in enumerate(items):
        match item.get("type"):
            case "function_call" if waiting and answering:
                raise _out_of_order(index, f"the call {waiting[0]} still waits for its result")
            case "function_call":
                waiting.append(item["call_id"])
            case "function_call_output":
                if not waiting or item["call_id"] != waiting[0]:
                    expected = (
                        f"the result of {waiting[0]} comes first" if waiting else "no call waits for it"
                    )
                    raise _out_of_order(index, expected)
                waiting.pop(0)
                answering = bool(waiting)
            case "reasoning":
                pass
            case _ if waiting:
                raise _out_of_order(index, f"the call {waiting[0]} still waits for its result")


def _out_of_order(index: int, why: str) -> Refused:
    return Refused(400, "out_of_order", f"input[{index}] is out of order: {why}.", param=f"input[{index}]")
