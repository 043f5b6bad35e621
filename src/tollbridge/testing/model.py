"""The scripted model: the same request gets the same answer, and words in it ask for every kind of answer."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tollbridge.protocols.openresponses.schema import FunctionTool
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import (
    Block,
    Call,
    Draw,
    Refuse,
    Say,
    ScriptedAnswer,
    Think,
    cut_answer,
    unseal,
)
from tollbridge.testing.validation import ImageInfo, read_image, split_data_url
from tollbridge.types.media import draw_png

# SECTION What the scripted model finds in the conversation it is given.

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


def _picture(url: str) -> ImageInfo | str:
    label, data = split_data_url(url)
    return read_image(data) or f"{len(data)} bytes labelled {label} that are no image I know"


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


# SECTION Which of the offered tools the scripted model calls.

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# Words of a tool's name that a request for it need not contain.
_FILLERS = frozenset({"get", "set", "the", "a", "to", "of", "do", "copilot", "mcp"})


def choose_tools(turn: AcceptedRequest, asked: Collection[str]) -> list[FunctionTool]:
    tools, mode = _allowed(turn)
    if mode == "none" or not tools:
        return []
    if mode == "auto" and results(turn.items):
        return []  # what was asked for has been done; now it is told
    request = wish(turn.items)
    named = [tool for tool in tools if re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", request)]
    wanted = named or [tool for tool in tools if _is_asked_for(tool.name, request)]
    if not wanted and (mode == "required" or {"tool", "parallel"} & set(asked)):
        wanted = list(tools)
    if not wanted:
        return []
    if "parallel" in asked and turn.body.parallel_tool_calls is not False:
        others = [tool for tool in tools if tool not in wanted]
        return ([*wanted, *others] * 2)[:2]
    return wanted[:1]


def _allowed(turn: AcceptedRequest) -> tuple[Sequence[FunctionTool], str]:
    """The tools that `tool_choice` leaves, and whether one must be called."""
    choice = turn.body.tool_choice or "auto"
    if not isinstance(choice, Mapping):
        return turn.tools, choice
    if choice["type"] == "function":
        return [tool for tool in turn.tools if tool.name == choice["name"]], "required"
    names = {tool["name"] for tool in choice["tools"]}
    return [tool for tool in turn.tools if tool.name in names], choice.get("mode") or "auto"


def _is_asked_for(name: str, request: str) -> bool:
    """Whether every telling word of the name begins a word of the request, as "directory" for `list_dir`."""
    words = [word.lower() for word in _WORD.findall(name)]
    telling = [word for word in words if word not in _FILLERS]
    said = [word.lower() for word in re.findall(r"\w+", request)]
    return bool(telling) and all(any(word.startswith(part) for word in said) for part in telling)


# SECTION A JSON value made to satisfy a JSON Schema, as well as can be without searching.

Schema = Mapping[str, Any]

_DEEPEST = 12
_MOST = 10_000  # the longest text or list that is made because a schema asks for it
_FORMATS: dict[str, str] = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def _no_hint(_name: str) -> str | None:
    return None


def make_value(
    schema: Any,
    hint: Callable[[str], str | None] = _no_hint,
    name: str = "value",
    full: bool = False,
) -> Any:
    """`hint` gives a text for a free string field of that name; `full` fills optional fields too."""
    return _Maker(schema if isinstance(schema, Mapping) else {}, hint, full).make(schema, name, 0)


class _Maker:
    def __init__(self, root: Schema, hint: Callable[[str], str | None], full: bool) -> None:
        self._root = root
        self._hint = hint
        self._full = full

    def make(self, schema: Any, name: str, depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return name  # `true` and the absent schema allow anything
        schema = self._resolve(schema)
        for field in ("const", "default"):
            if field in schema:
                return schema[field]
        for field in ("enum", "examples"):
            if isinstance(schema.get(field), list) and schema[field]:
                return schema[field][0]
        if depth > _DEEPEST:
            return None
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((one for one in kind if one != "null"), "null")
        return self._of_type(kind or _guess_type(schema), schema, name, depth)

    def _of_type(self, kind: object, schema: Schema, name: str, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                count = max(_bound(schema, "minItems", 0), 1)
                count = min(count, _bound(schema, "maxItems", count))
                items = schema.get("items", {"type": "string"})
                return [self.make(items, name, depth + 1) for _ in range(count)]
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
        return self._string(schema, name)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = _mapping(schema.get("properties"))
        wanted = _names(schema.get("required"))
        if self._full:
            wanted = [*wanted, *(name for name in properties if name not in wanted)]
        return {name: self.make(properties.get(name), name, depth + 1) for name in wanted}

    def _string(self, schema: Schema, name: str) -> str:
        known = _FORMATS.get(str(schema.get("format")))
        if known is not None:
            return known
        text = (self._hint(name) or name).ljust(_bound(schema, "minLength", 0), ".")
        return text[: _bound(schema, "maxLength", len(text))]

    def _resolve(self, schema: Schema) -> Schema:
        """The schema with references followed, `allOf` merged and the first alternative chosen."""
        for _ in range(_DEEPEST):
            alternatives = [one for one in _list(schema, "anyOf", "oneOf") if isinstance(one, Mapping)]
            if isinstance(reference := schema.get("$ref"), str):
                schema = _follow(self._root, reference)
            elif "allOf" in schema:
                schema = _merge(schema)
            elif alternatives:
                rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
                useful = [one for one in alternatives if one.get("type") != "null"]
                schema = {**rest, **(useful or alternatives)[0]}
            else:
                break
        return schema


def _merge(schema: Schema) -> Schema:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in (one for one in _list(schema, "allOf") if isinstance(one, Mapping)):
        properties = {**_mapping(merged.get("properties")), **_mapping(part.get("properties"))}
        required = [*_names(merged.get("required")), *_names(part.get("required"))]
        merged = {**merged, **part, "properties": properties, "required": list(dict.fromkeys(required))}
    return merged


# Schemas come from strangers: what is not of its right type is taken as not said.


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _list(schema: Schema, *fields: str) -> list[Any]:
    return next((schema[field] for field in fields if isinstance(schema.get(field), list)), [])


def _bound(schema: Schema, field: str, default: int) -> int:
    value = schema.get(field)
    return value if isinstance(value, int) and 0 <= value <= _MOST else default


def _guess_type(schema: Schema) -> str:
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _follow(root: Schema, reference: str) -> Schema:
    found: Any = root
    for step in filter(None, reference.removeprefix("#").split("/")):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _number(schema: Schema, whole: bool) -> int | float:
    least = _limit(schema, "minimum", "exclusiveMinimum", 1)
    most = _limit(schema, "maximum", "exclusiveMaximum", -1)
    value: int | float = 1
    if least is not None:
        value = max(value, least)
    if most is not None:
        value = min(value, most)
    step = schema.get("multipleOf")
    if isinstance(step, int | float) and step > 0:
        value = -(-value // step) * step
    return int(value) if whole else value


def _limit(schema: Schema, plain: str, exclusive: str, inwards: int) -> int | float | None:
    if isinstance(limit := schema.get(exclusive), int | float):
        return limit + inwards
    limit = schema.get(plain)
    return limit if isinstance(limit, int | float) else None


# SECTION The scripted model: the same request gets the same answer, and words in it ask for every kind of answer.

# What a word in the last user message asks for. The same names can be given as a scenario.
WORDS: dict[str, tuple[str, str]] = {
    "reasoning": (r"reason(ing)?|think(ing)?", "thinks before it answers; effort sets for how long"),
    "tool": (r"tools?|function call", "calls the tool that is named, or else the first one offered"),
    "parallel": (r"parallel", "calls two tools at once (one, where parallel_tool_calls is false)"),
    "image": (r"draw|image|picture", "makes an image (an image_generation_call holding a real PNG)"),
    "refusal": (r"refuse|refusal", "refuses"),
    "incomplete": (r"incomplete|length", "stops after 16 tokens, incomplete for max_output_tokens"),
    "long": (r"long", "says 1,000 tokens; `long 5000` says 5,000"),
    "slow": (r"slow(ly)?", "takes its time: 50 ms for each token"),
    "cite": (r"cite|citations?|sources?", "cites two pages (url_citation annotations)"),
}
_PATTERNS = {name: re.compile(rf"\b({pattern})\b", re.IGNORECASE) for name, (pattern, _) in WORDS.items()}
_LONG = re.compile(r"\blong (\d{1,6})\b", re.IGNORECASE)

INCOMPLETE_TOKENS = 16
LONG_TOKENS = 1_000
SLOW_SECONDS = 0.05
# How many rounds of thought each effort is worth.
_ROUNDS = {"none": 0, "minimal": 1, "low": 1, "medium": 2, "high": 4, "xhigh": 8, "max": 8}
_CITES = (
    ("the first source", "https://example.com/first", "The first source"),
    ("the second source", "https://example.org/second", "The second source"),
)


def find_words(text: str) -> set[str]:
    return {name for name, pattern in _PATTERNS.items() if pattern.search(text)}


def answer(turn: AcceptedRequest, words: Collection[str] = (), pace: float = SLOW_SECONDS) -> ScriptedAnswer:
    """What the model says to a turn. `words` are asked for besides those in the last user message."""
    asked = {*words, *find_words(wish(turn.items))}
    said = ScriptedAnswer(
        blocks=(*_thoughts(turn, asked), *_speech(turn, asked)),
        pace=pace if "slow" in asked else 0.0,
    )
    limit = min(turn.body.max_output_tokens or turn.model["max_tokens"], turn.model["max_tokens"])
    return cut_answer(said, min(limit, INCOMPLETE_TOKENS) if "incomplete" in asked else limit)


def _thoughts(turn: AcceptedRequest, asked: Collection[str]) -> list[Block]:
    effort = turn.body.reasoning.effort if turn.body.reasoning else None
    if "reasoning" not in turn.model["tags"] or effort == "none":
        return []
    if effort is None and "reasoning" not in asked:
        return []
    thought = f"The user said “{quote(last_request(turn.items))}”. I look at what I was given. "
    return [Think((thought * _ROUNDS[effort or "low"]).strip())]


def _speech(turn: AcceptedRequest, asked: Collection[str]) -> list[Block]:
    if "refusal" in asked:
        return [Refuse("I refuse to answer this, because I was asked to refuse.")]
    calls = choose_tools(turn, asked)
    if calls:
        hint = Hints(turn.items)
        made = [(tool.name, make_value(tool.parameters or {"type": "object"}, hint)) for tool in calls]
        return [Call(name, msgspec.json.encode(value).decode()) for name, value in made]
    if turn.body.text and turn.body.text.format and turn.body.text.format.type != "text":
        schema = turn.body.text.format.schema or {"type": "object"}
        value = make_value(schema, Hints(turn.items), full=True)
        return [Say(msgspec.json.encode(value).decode())]
    if "image" in asked and "image-generation" in turn.model["tags"] and not images(turn.items):
        return [Draw(base64.b64encode(draw_png()).decode()), Say("Here is the image you asked for.")]
    return [_words_for(turn, asked)]


def _words_for(turn: AcceptedRequest, asked: Collection[str]) -> Say:
    text = " ".join(describe(turn.items, turn.body.instructions, [tool.name for tool in turn.tools]))
    if "tool" in asked and not turn.tools:
        text += " No tools were offered, so I call none."
    if "long" in asked:
        found = _LONG.search(wish(turn.items))
        text += _fill(int(found[1]) if found else LONG_TOKENS)
    if "cite" in asked:
        text += f" See {_CITES[0][0]} and {_CITES[1][0]}."
        return Say(text, _CITES)
    return Say(text)


def _fill(tokens: int) -> str:
    """Numbered words, one token each, so that a reader can see where a long answer was cut."""
    return "".join(f" w{index}" for index in range(1, tokens + 1))
