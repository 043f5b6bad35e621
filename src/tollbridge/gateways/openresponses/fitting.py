"""A request fitted to one server: the same words, in the forms that this server takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tollbridge.core.profile import STANDARD, Profile

Json = dict[str, Any]

# What a request is not one without.
_NEEDED = frozenset({"model", "input", "stream"})
# What a part is called in a note, and the field that holds its data URL.
_BYTES = {"input_image": ("image", "image_url"), "input_file": ("file", "file_data")}
_FROM_TOOL = "[From the result of a tool:]"


def fitted(body: Json, profile: Profile) -> Json:
    """The body of a request as the server takes it. One that takes everything gets it as it is."""
    if profile == STANDARD:
        return body
    instructions, items = _system(_input(body["input"], profile), profile)
    fit: Json = {**body, "input": items}
    if instructions:
        fit["instructions"] = instructions
    if profile.tools == "nested":
        fit |= _nested(body)
    refused = _refused(profile)
    return {name: value for name, value in fit.items() if name in _NEEDED or name not in refused}


def _refused(profile: Profile) -> set[str]:
    refused = set(profile.leave_out)
    if not profile.store:
        refused.add("store")
    if not profile.include or not profile.reasoning:
        refused.add("include")
    return refused


def _input(items: list[Json], profile: Profile) -> list[Json]:
    kept = [item for item in items if profile.reasoning or item["type"] != "reasoning"]
    refused = {kind for kind, takes in _takes(profile).items() if not takes}
    if refused:
        kept = [_with_parts(item, lambda part: _noted(part, refused)) for item in kept]
    if not profile.rich_results:
        kept = _text_results(kept)
    if not profile.calls:
        kept = _joined(map(_spoken, kept))
    return [_as_array(item) for item in kept] if profile.content == "array" else kept


def _takes(profile: Profile) -> dict[str, bool]:
    return {"input_image": profile.images, "input_file": profile.files}


def _system(items: list[Json], profile: Profile) -> tuple[str, list[Json]]:
    """The system prompt, which is always the first item, where the server looks for it."""
    if profile.system == "developer" or not items or items[0].get("role") != "developer":
        return "", items
    if profile.system == "instructions":
        return _text_of(items[0]["content"]), items[1:]
    told = [{**items[0], "role": profile.system}, *items[1:]]
    return "", _joined(told) if profile.system == "user" else told


def _nested(body: Json) -> Json:
    """Tools as chat completions name them: everything but the type under `function`."""
    fit: Json = {}
    if "tools" in body:
        fit["tools"] = [
            {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
            for tool in body["tools"]
        ]
    if isinstance(body.get("tool_choice"), dict):
        fit["tool_choice"] = {"type": "function", "function": {"name": body["tool_choice"]["name"]}}
    return fit


def _with_parts(item: Json, change: Callable[[Json], Json]) -> Json:
    field = "output" if item["type"] == "function_call_output" else "content"
    parts = item.get(field)
    if not isinstance(parts, list):
        return item
    return {**item, field: _plain([change(part) for part in parts])}


def _noted(part: Json, refused: set[str]) -> Json:
    """A note in the place of what the model takes none of, so that it knows there was something."""
    if part["type"] not in refused:
        return part
    what, size = _described(part)
    return _text(f"[{what}, {size}, left out: the model takes no {what}s]")


def _described(part: Json) -> tuple[str, str]:
    what, field = _BYTES[part["type"]]
    head, _, data = str(part.get(field, "")).partition(",")
    mime = head.removeprefix("data:").partition(";")[0] or "unknown"
    return what, f"{mime}, {len(data) * 3 // 4:,} bytes"


def _text_results(items: Iterable[Json]) -> list[Json]:
    """Results of text alone. Their images and files stand in a message after the last result of the round."""
    found: list[Json] = []
    moved: list[Json] = []
    for item in items:
        is_result = item["type"] == "function_call_output"
        if not is_result and moved:
            found.append({"type": "message", "role": "user", "content": [_text(_FROM_TOOL), *moved]})
            moved = []
        if is_result and isinstance(item["output"], list):
            moved += [part for part in item["output"] if part["type"] in _BYTES]
            item = _with_parts(item, _below)
        found.append(item)
    if moved:
        found.append({"type": "message", "role": "user", "content": [_text(_FROM_TOOL), *moved]})
    return found


def _below(part: Json) -> Json:
    return _text(f"[{', '.join(_described(part))}: below]") if part["type"] in _BYTES else part


def _spoken(item: Json) -> Json:
    """A call or its result as a message."""
    if item["type"] == "function_call":
        said = f"[Called the tool {item['name']} ({item['call_id']}) with {item['arguments']}]"
        return {"type": "message", "role": "assistant", "content": said}
    if item["type"] == "function_call_output":
        heading = f"[The result of the tool call {item['call_id']}:]"
        output = item["output"]
        if isinstance(output, str):
            return {"type": "message", "role": "user", "content": f"{heading}\n{output}"}
        return {"type": "message", "role": "user", "content": [_text(heading), *output]}
    return item


def _joined(items: Iterable[Json]) -> list[Json]:
    """Messages of one side in a row made one: what was spoken stands beside what was said."""
    found: list[Json] = []
    for item in items:
        last = found[-1] if found else None
        if last and last["type"] == item["type"] == "message" and last["role"] == item["role"]:
            content = _plain([*_parts(last["content"]), *_parts(item["content"])])
            found[-1] = {**last, "content": content}
        else:
            found.append(item)
    return found


def _as_array(item: Json) -> Json:
    if item["type"] != "message" or not isinstance(item["content"], str):
        return item
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {**item, "content": [{"type": kind, "text": item["content"]}]}


def _parts(content: str | list[Json]) -> list[Json]:
    return [_text(content)] if isinstance(content, str) else content


def _plain(parts: list[Json]) -> str | list[Json]:
    """Text alone as a string, as everywhere."""
    return _text_of(parts) if all(part["type"] == "input_text" for part in parts) else parts


def _text_of(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _text(text: str) -> Json:
    return {"type": "input_text", "text": text}
