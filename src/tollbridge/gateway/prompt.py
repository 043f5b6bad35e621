"""What the scripted model finds in the conversation it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tollbridge.gateway.pictures import Picture, read_picture, split_data_url
from tollbridge.gateway.resources import unseal

Item = Mapping[str, Any]

# Editors wrap what the person typed in a message full of context and reminders.
_REQUEST = re.compile(r"<(userRequest|prompt)>(.*?)</\1>", re.DOTALL)
_FAULT = re.compile(r"(?<!\S)fault:(?P<name>[\w-]+)")
_QUOTED = re.compile(r"`([^`\n]+)`|“([^”\n]+)”|\"([^\"\n]+)\"")
_PATH = re.compile(r"(?<![\w:/.])/[\w.-]+(?:/[\w.-]+)*/?")
_PLACE = re.compile(r"\b(?:in|for|at|of) ((?:[A-Z][\w'-]*)(?: [A-Z][\w'-]*)*)")
_PATH_NAMES = re.compile(r"path|file|dir|folder|uri", re.IGNORECASE)
_QUOTE_MOST, _RESULT_MOST, _WISH_MOST = 200, 2_000, 500


def text_of(content: Any) -> str:
    """The words of a message's content or a tool's output."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    found = [part.get("text") or part.get("refusal") for part in content if isinstance(part, Mapping)]
    return "\n".join(text for text in found if isinstance(text, str))


def last_user_text(items: Sequence[Item]) -> str:
    for item in reversed(items):
        if item.get("role") == "user":
            return text_of(item.get("content"))
    return ""


def last_request(items: Sequence[Item]) -> str:
    """What the person asked for last, without the editor's wrapping and without the name of a fault."""
    text = last_user_text(items)
    found = _REQUEST.findall(text)
    return _FAULT.sub("", found[-1][1] if found else text).strip()


def wish(items: Sequence[Item]) -> str:
    """The text whose words ask for something: a person's short request, not pages that hold every word."""
    text = last_request(items)
    return text if len(text) <= _WISH_MOST else ""


def fault_name(given: Any) -> str | None:
    """The scenario a request's `input` or `prompt` names, whether or not the rest of it is right."""
    items = given if isinstance(given, list) else [{"role": "user", "content": given}]
    found = _FAULT.search(last_user_text([item for item in items if isinstance(item, Mapping)]))
    return found["name"] if found else None


def results(items: Sequence[Item]) -> list[Item]:
    """The tool results at the end, which the model is to answer now."""
    found: list[Item] = []
    for item in reversed(items):
        if item["type"] == "function_call_output":
            found.insert(0, item)
        elif item.get("role") not in ("system", "developer"):
            break
    return found


def system_prompt(items: Sequence[Item], instructions: str | None) -> str:
    said = [text_of(item["content"]) for item in items if item.get("role") in ("system", "developer")]
    return "\n".join([*([instructions] if instructions else []), *said])


def images(items: Sequence[Item]) -> list[str]:
    """A description of every image in what is to be answered now."""
    asked = results(items) or [item for item in items if item.get("role") == "user"][-1:]
    return [text for item in asked for text in _describe_images(item.get("content") or item.get("output"))]


def _describe_images(content: Any) -> Iterator[str]:
    if not isinstance(content, Sequence) or isinstance(content, str):
        return
    for part in content:
        if part["type"] == "input_image":
            url = part.get("image_url") or ""
            yield "an image at a URL, which I do not fetch" if url.startswith("http") else str(_picture(url))
        elif part["type"] == "input_file":
            yield f"the file {part.get('filename') or 'without a name'}"


def _picture(url: str) -> Picture | str:
    label, data = split_data_url(url)
    return read_picture(data) or f"{len(data)} bytes labelled {label} that are no image I know"


def describe(items: Sequence[Item], instructions: str | None, tools: Sequence[str]) -> Iterator[str]:
    """Sentences that show what the model received."""
    answered = results(items)
    names = {item["call_id"]: item["name"] for item in items if item["type"] == "function_call"}
    for item in answered:
        output = quote(text_of(item["output"]), _RESULT_MOST)
        yield f"The tool {names[item['call_id']]} answered: “{output}”."
    if not answered:
        yield f"You said “{quote(last_request(items))}”."
    for image in images(items):
        yield f"I see {image}."
    yield f"I was given {len(items)} {'item' if len(items) == 1 else 'items'}"
    system = system_prompt(items, instructions)
    yield (
        f"and the system prompt “{quote(system)}” of {len(system)} characters,"
        if system
        else "and no system prompt,"
    )
    shown = ", ".join(tools[:5]) + (f" and {len(tools) - 5} more" if len(tools) > 5 else "")
    yield f"with the tools {shown}." if tools else "with no tools."
    yield from _compacted(items)


def _compacted(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        if item["type"] == "compaction":
            summary = unseal(item["encrypted_content"])
            yield (
                f"Before that: “{quote(summary)}”."
                if summary
                else "Before that: something another server sealed."
            )


def quote(text: str, most: int = _QUOTE_MOST) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


class Hints:
    """Texts of the conversation to fill a tool's arguments with, by the name of the argument."""

    def __init__(self, items: Sequence[Item]) -> None:
        request = last_request(items)
        self._quoted: list[str] = [next(filter(None, found)) for found in _QUOTED.findall(request)]
        places = _PLACE.findall(request)
        self._place: str | None = places[0] if places else None
        everything = [request, *(text_of(item.get("content")) for item in items if item["type"] == "message")]
        paths = [path for text in everything for path in _PATH.findall(text)]
        self._path: str | None = paths[0] if paths else None

    def __call__(self, name: str) -> str | None:
        if self._quoted:
            return self._quoted.pop(0)
        return self._path if _PATH_NAMES.search(name) else self._place
