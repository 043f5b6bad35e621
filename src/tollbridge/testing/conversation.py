"""What the scripted model reads in a conversation: the last request, its words, tool results, images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tollbridge.testing.limits import LIMITS
from tollbridge.testing.responses import decode_encrypted_content
from tollbridge.types.media import image_size, sniff, split_data_url

Item = Mapping[str, Any]

# Editors put what the user typed into a message with context and reminders.
_USER_REQUEST = re.compile(r"<(userRequest|prompt)>((?:(?!<\1>).)*?)</\1>", re.DOTALL)
# At the start of a word, or after a quotation mark: some agents quote the prompt.
_FAULT = re.compile(r"(?<![^\s\"'“‘`])fault:(?P<name>[\w-]+)")
_QUOTED = re.compile(r"`([^`\n]+)`|“([^“”\n]+)”|\"([^\"\n]+)\"")
_PATH = re.compile(r"(?<![\w:/.])/[\w.-]+(?:/[\w.-]+)*/?")
_PLACE = re.compile(r"\b(?:in|for|at|of) ((?:[A-Z][\w'-]*)(?: [A-Z][\w'-]*)*)")
PATH_NAMES = re.compile(r"path|file|dir|folder|uri", re.IGNORECASE)


def read_text(content: Any) -> str:
    """Return the text of a message's content or a tool's output."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    texts = [part.get("text") or part.get("refusal") for part in content if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def find_last_request(items: Sequence[Item]) -> str:
    """Return what the user typed last, without the context of the editor and without `fault:NAME`."""
    contents = (item.get("content") for item in reversed(items) if item.get("role") == "user")
    text = read_text(next(contents, ""))
    matches = _USER_REQUEST.findall(text)
    return _FAULT.sub("", matches[-1][1] if matches else text).strip()


def _find_newest_text(content: Any) -> str:
    """Return what the user typed last, from the content of a user message.

    Several messages are joined to one after an answer that failed. An earlier one must not count again.
    """
    text = read_text(content)
    if matches := _USER_REQUEST.findall(text):
        return str(matches[-1][1])
    if not isinstance(content, list | tuple):
        return text
    # Agents add reminders in parts of their own, which begin with a tag.
    texts = [read_text([part]) for part in content]
    return next((text for text in reversed(texts) if text and not text.startswith("<")), text)


def find_short_request(items: Sequence[Item]) -> str:
    """Return the last request if it is short, else an empty text.

    Only short requests are searched for words: a long text contains every word by chance.
    """
    text = find_last_request(items)
    return text if len(text) <= LIMITS.searched_text else ""


def find_fault_name(value: Any) -> str | None:
    """Return the scenario that the last user message of an input names as `fault:NAME`."""
    # The input is not validated yet.
    items = value if isinstance(value, list) else [{"role": "user", "content": value}]
    for item in reversed(items):
        if isinstance(item, Mapping) and item.get("role") == "user":
            match = _FAULT.search(_find_newest_text(item.get("content")))
            return match["name"] if match else None
    return None


def find_last_results(items: Sequence[Item]) -> list[Item]:
    """Return the tool results at the end of the conversation, which the model answers now."""
    results: list[Item] = []
    for item in reversed(items):
        if item["type"] == "function_call_output":
            results.insert(0, item)
        elif item.get("role") not in ("system", "developer"):
            break
    return results


def describe_images(items: Sequence[Item]) -> list[str]:
    """Describe every image and file in the items that the model answers now."""
    current = find_last_results(items) or [item for item in items if item.get("role") == "user"][-1:]
    contents = [item.get("content") or item.get("output") for item in current]
    parts = [part for content in contents if isinstance(content, list | tuple) for part in content]
    descriptions: list[str] = []
    for part in parts:
        if part["type"] == "input_image":
            url = part.get("image_url") or ""
            remote = "an image at a URL, which I do not fetch"
            descriptions.append(remote if url.startswith("http") else describe_image(*split_data_url(url)))
        elif part["type"] == "input_file":
            descriptions.append(f"the file {part.get('filename') or 'without a name'}")
    return descriptions


def describe_image(label: str, data: bytes) -> str:
    """Describe an image by its bytes: they decide, and not the label."""
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        return f"{len(data)} bytes labelled {label} that are no image I know"
    size = image_size(data)
    return f"{mime}, {size[0]} × {size[1]} pixels" if size else f"{mime} of unknown size"


def describe(items: Sequence[Item], instructions: str | None, tools: Sequence[str]) -> Iterator[str]:
    """Yield sentences that show what the model received."""
    results = find_last_results(items)
    tool_names = {item["call_id"]: item["name"] for item in items if item["type"] == "function_call"}
    for item in results:
        output = quote(read_text(item["output"]), 2_000)
        yield f"The tool {tool_names[item['call_id']]} answered: “{output}”."
    if not results:
        yield f"You said “{quote(find_last_request(items))}”."
    for image in describe_images(items):
        yield f"I see {image}."
    yield f"I was given {len(items)} {'item' if len(items) == 1 else 'items'}"
    texts = [read_text(item["content"]) for item in items if item.get("role") in ("system", "developer")]
    system = "\n".join([*([instructions] if instructions else []), *texts])
    prompt = (
        f"the system prompt “{quote(system)}” of {len(system)} characters" if system else "no system prompt"
    )
    yield f"and {prompt},"
    names = ", ".join(tools[:5]) + (f" and {len(tools) - 5} more" if len(tools) > 5 else "")
    yield f"with the tools {names}." if tools else "with no tools."
    for item in items:
        if item["type"] == "compaction":
            summary = decode_encrypted_content(item["encrypted_content"])
            content = f"“{quote(summary)}”" if summary else "encrypted content of another server"
            yield f"Before that: {content}."


def quote(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


class Hints:
    """Texts of the conversation that become the arguments of a tool, by the name of the argument."""

    def __init__(self, items: Sequence[Item]) -> None:
        request = find_last_request(items)
        self._quoted: list[str] = [next(filter(None, groups)) for groups in _QUOTED.findall(request)]
        places = _PLACE.findall(request)
        self._place: str | None = places[0] if places else None
        texts = [request, *(read_text(item.get("content")) for item in items if item["type"] == "message")]
        paths = [path for text in texts for path in _PATH.findall(text)]
        self._path: str | None = paths[0] if paths else None

    def __call__(self, name: str) -> str | None:
        if self._quoted:
            return self._quoted.pop(0)
        return self._path if PATH_NAMES.search(name) else self._place
