"""The scripted model.

The same request always gets the same answer. Words in the last user message select the kind of answer, see
`WORDS`. Without such a word, the model describes what it received.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
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
    decode_encrypted_content,
)
from tollbridge.testing.validation import read_image
from tollbridge.types.media import encode_png, split_data_url

Item = Mapping[str, Any]


# --- Reading the conversation ---

# Editors put what the user typed into a message with context and reminders.
_USER_REQUEST = re.compile(r"<(userRequest|prompt)>((?:(?!<\1>).)*?)</\1>", re.DOTALL)
# At the start of a word, or after a quotation mark: some agents quote the prompt.
_FAULT = re.compile(r"(?<![^\s\"'“‘`])fault:(?P<name>[\w-]+)")
_QUOTED = re.compile(r"`([^`\n]+)`|“([^“”\n]+)”|\"([^\"\n]+)\"")
_PATH = re.compile(r"(?<![\w:/.])/[\w.-]+(?:/[\w.-]+)*/?")
_PLACE = re.compile(r"\b(?:in|for|at|of) ((?:[A-Z][\w'-]*)(?: [A-Z][\w'-]*)*)")
_PATH_NAMES = re.compile(r"path|file|dir|folder|uri", re.IGNORECASE)
# Longest quoted texts, and the longest request that is searched for words, in characters.
_QUOTE_LIMIT, _RESULT_LIMIT, _REQUEST_LIMIT = 200, 2_000, 500


def read_text(content: Any) -> str:
    """Return the text of a message's content or a tool's output."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    texts = [part.get("text") or part.get("refusal") for part in content if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def find_last_user_text(items: Sequence[Item]) -> str:
    for item in reversed(items):
        if item.get("role") == "user":
            return read_text(item.get("content"))
    return ""


def find_last_request(items: Sequence[Item]) -> str:
    """Return what the user typed last, without the context of the editor and without `fault:NAME`."""
    text = find_last_user_text(items)
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
    return text if len(text) <= _REQUEST_LIMIT else ""


def find_fault_name(value: Any) -> str | None:
    """Return the scenario that the last user message names as `fault:NAME`.

    Args:
        value: The `input` or `prompt` of a request. It can be invalid.
    """
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


def join_system_prompt(items: Sequence[Item], instructions: str | None) -> str:
    texts = [read_text(item["content"]) for item in items if item.get("role") in ("system", "developer")]
    return "\n".join([*([instructions] if instructions else []), *texts])


def describe_images(items: Sequence[Item]) -> list[str]:
    """Describe every image and file in the items that the model answers now."""
    current = find_last_results(items) or [item for item in items if item.get("role") == "user"][-1:]
    return [text for item in current for text in _describe_parts(item.get("content") or item.get("output"))]


def _describe_parts(content: Any) -> Iterator[str]:
    if not isinstance(content, Sequence) or isinstance(content, str):
        return
    for part in content:
        if part["type"] == "input_image" and str(part.get("image_url")).startswith("http"):
            yield "an image at a URL, which I do not fetch"
        elif part["type"] == "input_image":
            label, data = split_data_url(part.get("image_url") or "")
            image = read_image(data)
            yield str(image) if image else f"{len(data)} bytes labelled {label} that are no image I know"
        elif part["type"] == "input_file":
            yield f"the file {part.get('filename') or 'without a name'}"


def describe(items: Sequence[Item], instructions: str | None, tools: Sequence[str]) -> Iterator[str]:
    """Yield sentences that show what the model received."""
    results = find_last_results(items)
    tool_names = {item["call_id"]: item["name"] for item in items if item["type"] == "function_call"}
    for item in results:
        output = quote(read_text(item["output"]), _RESULT_LIMIT)
        yield f"The tool {tool_names[item['call_id']]} answered: “{output}”."
    if not results:
        yield f"You said “{quote(find_last_request(items))}”."
    for image in describe_images(items):
        yield f"I see {image}."
    yield f"I was given {len(items)} {'item' if len(items) == 1 else 'items'}"
    system = join_system_prompt(items, instructions)
    yield (
        f"and the system prompt “{quote(system)}” of {len(system)} characters,"
        if system
        else "and no system prompt,"
    )
    names = ", ".join(tools[:5]) + (f" and {len(tools) - 5} more" if len(tools) > 5 else "")
    yield f"with the tools {names}." if tools else "with no tools."
    yield from _describe_compactions(items)


def _describe_compactions(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        if item["type"] == "compaction":
            summary = decode_encrypted_content(item["encrypted_content"])
            yield (
                f"Before that: “{quote(summary)}”."
                if summary
                else "Before that: encrypted content of another server."
            )


def quote(text: str, limit: int = _QUOTE_LIMIT) -> str:
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
        return self._path if _PATH_NAMES.search(name) else self._place


# --- Choosing tools ---

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# Words of a tool's name that a request does not have to contain.
_FILLER_WORDS = frozenset({"get", "set", "the", "a", "to", "of", "do", "copilot", "mcp"})


def choose_tools(request: AcceptedRequest, words: Collection[str]) -> list[FunctionTool]:
    """Return the tools that the model calls.

    Args:
        request: The request.
        words: The keys of `WORDS` that apply to it.
    """
    tools, mode = _allowed_tools(request)
    if mode == "none" or not tools:
        return []
    if mode == "auto" and find_last_results(request.items):
        return []  # the calls are done: answer with their results
    text = find_short_request(request.items)
    named = [tool for tool in tools if re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", text)]
    chosen = named or [tool for tool in tools if _is_requested(tool.name, text)]
    if not chosen and (mode == "required" or {"tool", "parallel"} & set(words)):
        chosen = list(tools)
    if not chosen:
        return []
    if "parallel" in words and request.body.parallel_tool_calls is not False:
        others = [tool for tool in tools if tool not in chosen]
        return ([*chosen, *others] * 2)[:2]
    return chosen[:1]


def _allowed_tools(request: AcceptedRequest) -> tuple[Sequence[FunctionTool], str]:
    """Return the tools that `tool_choice` allows, and the mode: none, auto or required."""
    choice = request.body.tool_choice or "auto"
    if not isinstance(choice, Mapping):
        return request.tools, choice
    if choice["type"] == "function":
        return [tool for tool in request.tools if tool.name == choice["name"]], "required"
    names = {tool["name"] for tool in choice["tools"]}
    return [tool for tool in request.tools if tool.name in names], choice.get("mode") or "auto"


def _is_requested(name: str, text: str) -> bool:
    """Whether every word of a tool's name begins a word of the text, as "directory" for `list_dir`."""
    name_words = [word.lower() for word in _WORD.findall(name)]
    required = [word for word in name_words if word not in _FILLER_WORDS]
    text_words = [word.lower() for word in re.findall(r"\w+", text)]
    return bool(required) and all(any(word.startswith(part) for word in text_words) for part in required)


# --- Values for a JSON Schema ---

Schema = Mapping[str, Any]

_MAX_DEPTH = 12
_MAX_LENGTH = 10_000  # of texts and lists
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


def make_value(
    schema: Any,
    hint: Callable[[str], str | None] = lambda _: None,
    name: str = "value",
    full: bool = False,
) -> Any:
    """Create a value that satisfies a JSON Schema, as far as possible without a search.

    Args:
        schema: The schema. It can be invalid: parts of the wrong type are ignored.
        hint: Returns a text for a string field by its name, or None.
        name: The name of the value, used as the text if there is no hint.
        full: Whether to include optional fields.
    """
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
        if depth > _MAX_DEPTH:
            return None
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((option for option in kind if option != "null"), "null")
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
                return _number(schema, is_integer=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
        return self._string(schema, name)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = _mapping(schema.get("properties"))
        names = _names(schema.get("required"))
        if self._full:
            names = [*names, *(name for name in properties if name not in names)]
        return {name: self.make(properties.get(name), name, depth + 1) for name in names}

    def _string(self, schema: Schema, name: str) -> str:
        example = _FORMATS.get(str(schema.get("format")))
        if example is not None:
            return example
        text = (self._hint(name) or name).ljust(_bound(schema, "minLength", 0), ".")
        return text[: _bound(schema, "maxLength", len(text))]

    def _resolve(self, schema: Schema) -> Schema:
        """Follow references, merge `allOf` and choose the first alternative."""
        for _ in range(_MAX_DEPTH):
            alternatives = [
                option for option in _list(schema, "anyOf", "oneOf") if isinstance(option, Mapping)
            ]
            if isinstance(reference := schema.get("$ref"), str):
                schema = _follow(self._root, reference)
            elif "allOf" in schema:
                schema = _merge(schema)
            elif alternatives:
                rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
                not_null = [option for option in alternatives if option.get("type") != "null"]
                schema = {**rest, **(not_null or alternatives)[0]}
            else:
                break
        return schema


def _merge(schema: Schema) -> Schema:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in (part for part in _list(schema, "allOf") if isinstance(part, Mapping)):
        properties = {**_mapping(merged.get("properties")), **_mapping(part.get("properties"))}
        required = [*_names(merged.get("required")), *_names(part.get("required"))]
        merged = {**merged, **part, "properties": properties, "required": list(dict.fromkeys(required))}
    return merged


# Schemas can be invalid. A value of the wrong type counts as missing.


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _list(schema: Schema, *fields: str) -> list[Any]:
    return next((schema[field] for field in fields if isinstance(schema.get(field), list)), [])


def _bound(schema: Schema, field: str, default: int) -> int:
    value = schema.get(field)
    return value if isinstance(value, int) and 0 <= value <= _MAX_LENGTH else default


def _guess_type(schema: Schema) -> str:
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _follow(root: Schema, reference: str) -> Schema:
    schema: Any = root
    for step in filter(None, reference.removeprefix("#").split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        schema = schema.get(key) if isinstance(schema, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}


def _number(schema: Schema, is_integer: bool) -> int | float:
    minimum = _limit(schema, "minimum", "exclusiveMinimum", 1)
    maximum = _limit(schema, "maximum", "exclusiveMaximum", -1)
    value: int | float = 1
    if minimum is not None:
        value = max(value, minimum)
    if maximum is not None:
        value = min(value, maximum)
    step = schema.get("multipleOf")
    if isinstance(step, int | float) and step > 0:
        value = -(-value // step) * step
    return int(value) if is_integer else value


def _limit(schema: Schema, inclusive: str, exclusive: str, step: int) -> int | float | None:
    if isinstance(limit := schema.get(exclusive), int | float):
        return limit + step
    limit = schema.get(inclusive)
    return limit if isinstance(limit, int | float) else None


# --- A task in several steps ---

# The file in the request: "Fix the bug in tolls.py".
_TASK_FILE = re.compile(r"[\w./-]*[\w-]\.py\b")
_WORKSPACE = re.compile(r"workspace with the following folders:\s*- (\S+)")
# The bug: a line that says what should be there instead.
_BUG = re.compile(r"^(?P<wrong>[^\n#]*# should be: (?P<right>[^\n]+))", re.MULTILINE)
# Parts of parameter names.
_OLD = re.compile(r"old", re.IGNORECASE)
_NEW = re.compile(r"new", re.IGNORECASE)
_LINES = re.compile(r"line|offset|range", re.IGNORECASE)
TASK_PASSED = "all examples passed"


class BugFix:
    """Fixes a bug as an agent does: reads the file, edits it, runs its examples and checks their output.

    The bug is a line with a comment `# should be: …`; the examples are those in the file's docstrings. Tools
    are recognised by their parameters, so that every editor and agent can run it.

    Args:
        request: A request whose last user message names a Python file.
    """

    def __init__(self, request: AcceptedRequest) -> None:
        items = request.items
        start = max(index for index, item in enumerate(items) if item.get("role") == "user")
        outputs = {
            item["call_id"]: read_text(item["output"])
            for item in items[start:]
            if item["type"] == "function_call_output"
        }
        self._results = [
            (item["name"], outputs.get(item["call_id"], ""))
            for item in items[start:]
            if item["type"] == "function_call"
        ]
        self._tools = request.tools
        match = _TASK_FILE.search(find_short_request(items))
        self._name = match[0] if match else "tolls.py"
        folder = _WORKSPACE.search("\n".join(read_text(item.get("content")) for item in items))
        is_relative = folder is not None and not self._name.startswith("/")
        self._path = f"{folder[1]}/{self._name}" if folder and is_relative else self._name

    def next_block(self) -> Block:
        """Return the next call, or the report."""
        read, edit = self._find(_reads, "read", "view"), self._find(_edits, "edit", "replace")
        run = self._find(_runs, "terminal", "bash", "shell")
        if read is None or edit is None or run is None:
            return Say("I need tools that read a file, edit a file and run a command.")
        content = self._result(read)
        if content is None:
            return self._call(read)
        bug = _BUG.search(content)
        if bug is None:
            return Say(f"I read {self._name} and found no line with a comment “should be”.")
        # Some tools put a number and a tab or an arrow before each line.
        wrong, right = bug["wrong"].replace("→", "\t").split("\t")[-1].strip(), bug["right"].strip()
        if self._result(edit) is None:
            return self._call(edit, old=wrong, new=right)
        command = f"python3 -m doctest {self._path} && echo {TASK_PASSED}"
        output = self._result(run)
        if output is None:
            return self._call(run, command=command)
        verdict = "All its examples pass." if TASK_PASSED in output else f"Its examples fail: {quote(output)}"
        return Say(f"I read {self._name}, replaced `{wrong}` by `{right}` and ran its examples. {verdict}")

    def _find(self, suits: Callable[[Collection[str]], bool], *words: str) -> FunctionTool | None:
        """Return the tool with suitable parameters, preferably one whose name has one of the words."""
        tools = [tool for tool in self._tools if suits(_parameters(tool)) and "notebook" not in tool.name]
        named = (tool for tool in tools if any(word in tool.name.lower() for word in words))
        return next(named, tools[0] if tools else None)

    def _result(self, tool: FunctionTool) -> str | None:
        """Return the last result of a tool, or None if it was not called yet."""
        return next((output for name, output in reversed(self._results) if name == tool.name), None)

    def _call(self, tool: FunctionTool, old: str = "", new: str = "", command: str = "") -> Call:
        def hint(name: str) -> str:
            if name == "command":
                return command
            if _PATH_NAMES.search(name):
                return self._path
            return old if _OLD.search(name) else new if _NEW.search(name) else "Fix the bug"

        arguments = make_value(tool.parameters or {"type": "object"}, hint)
        if isinstance(arguments, dict):
            for name in arguments:
                if "end" in name.lower() or "limit" in name.lower():
                    arguments[name] = 200  # the last line to read, or the number of lines
        return Call(tool.name, msgspec.json.encode(arguments).decode())


def _parameters(tool: FunctionTool) -> Collection[str]:
    return _mapping(_mapping(tool.parameters).get("properties")).keys()


def _reads(names: Collection[str]) -> bool:
    """Whether these are the parameters of a tool that reads a file: a path and a range of lines."""
    return any(map(_PATH_NAMES.search, names)) and any(map(_LINES.search, names))


def _edits(names: Collection[str]) -> bool:
    return any(map(_PATH_NAMES.search, names)) and all(any(map(word.search, names)) for word in (_OLD, _NEW))


def _runs(names: Collection[str]) -> bool:
    return "command" in names


# --- Answers ---

# Kinds of answers: the pattern of the words that ask for it, and its description. Each is also a scenario.
WORDS: dict[str, tuple[str, str]] = {
    "reasoning": (r"reason(ing)?|think(ing)?", "reasons before the answer; the effort sets how much"),
    "task": (r"fix the bug", "fixes a bug in several steps, with the tools that read, edit and run"),
    "tool": (r"tools?|function call", "calls the tool that is named, or else the first tool"),
    "parallel": (r"parallel", "calls two tools at once (one if parallel_tool_calls is false)"),
    "image": (r"draw|image|picture", "returns an image (an image_generation_call with a real PNG)"),
    "refusal": (r"refuse|refusal", "refuses"),
    "incomplete": (r"incomplete|length", "stops after 16 tokens with max_output_tokens"),
    "long": (r"long", "returns 1,000 tokens; `long 5000` returns 5,000"),
    "slow": (r"slow(ly)?", "slow: 50 ms per token"),
    "cite": (r"cite|citations?|sources?", "cites two pages (url_citation annotations)"),
}
_PATTERNS = {name: re.compile(rf"\b({pattern})\b", re.IGNORECASE) for name, (pattern, _) in WORDS.items()}
_LONG = re.compile(r"\blong (\d{1,6})\b", re.IGNORECASE)

INCOMPLETE_TOKENS = 16
LONG_TOKENS = 1_000
SLOW_SECONDS = 0.05
# How often the reasoning text is repeated for each effort.
_REASONING_REPEATS = {"none": 0, "minimal": 1, "low": 1, "medium": 2, "high": 4, "xhigh": 8, "max": 8}
_CITES = (
    ("the first source", "https://example.com/first", "The first source"),
    ("the second source", "https://example.org/second", "The second source"),
)


def find_words(text: str) -> set[str]:
    return {name for name, pattern in _PATTERNS.items() if pattern.search(text)}


def make_answer(
    request: AcceptedRequest, words: Collection[str] = (), pace: float = SLOW_SECONDS
) -> ScriptedAnswer:
    """Return the answer of the model.

    Args:
        request: The request.
        words: Keys of `WORDS` that apply in addition to the words of the last user message.
        pace: Seconds per token of a slow answer.
    """
    words = {*words, *find_words(find_short_request(request.items))}
    whole_answer = ScriptedAnswer(
        blocks=(*_reasoning_blocks(request, words), *_answer_blocks(request, words)),
        pace=pace if "slow" in words else 0.0,
    )
    limit = min(request.body.max_output_tokens or request.model["max_tokens"], request.model["max_tokens"])
    return cut_answer(whole_answer, min(limit, INCOMPLETE_TOKENS) if "incomplete" in words else limit)


def _reasoning_blocks(request: AcceptedRequest, words: Collection[str]) -> list[Block]:
    effort = request.body.reasoning.effort if request.body.reasoning else None
    if "reasoning" not in request.model["tags"] or effort == "none":
        return []
    if effort is None and "reasoning" not in words:
        return []
    text = f"The user said “{quote(find_last_request(request.items))}”. I look at what I was given. "
    return [Think((text * _REASONING_REPEATS[effort or "low"]).strip())]


def _answer_blocks(request: AcceptedRequest, words: Collection[str]) -> list[Block]:
    if "refusal" in words:
        return [Refuse("I refuse to answer this, because I was asked to refuse.")]
    if "task" in words and request.tools:
        return [BugFix(request).next_block()]
    calls = choose_tools(request, words)
    if calls:
        hint = Hints(request.items)
        values = [(tool.name, make_value(tool.parameters or {"type": "object"}, hint)) for tool in calls]
        return [Call(name, msgspec.json.encode(value).decode()) for name, value in values]
    if request.body.text and request.body.text.format and request.body.text.format.type != "text":
        schema = request.body.text.format.schema or {"type": "object"}
        value = make_value(schema, Hints(request.items), full=True)
        return [Say(msgspec.json.encode(value).decode())]
    if (
        "image" in words
        and "image-generation" in request.model["tags"]
        and not describe_images(request.items)
    ):
        return [Draw(base64.b64encode(draw_bridge()).decode()), Say("Here is the image you asked for.")]
    return [_text_block(request, words)]


@cache
def draw_bridge(width: int = 320, height: int = 180) -> bytes:
    """Return a picture of a suspension bridge, as a PNG image."""
    sky, water, steel = b"\x9c\xc9\xe8", b"\x3d\x6e\x96", b"\xb5\x44\x2c"
    towers, deck, top = (width // 4, width * 3 // 4), height * 3 // 5, height // 6

    def colour(x: int, y: int) -> bytes:
        in_tower = min(abs(x - tower) for tower in towers) < width // 80
        cable = (
            deck - (deck - top) * min((abs(x - end) / (width // 4)) for end in (0, width // 2, width)) ** 2
        )
        if top <= y < height * 4 // 5 and (in_tower or deck <= y < deck + height // 30):
            return steel
        if cable <= y < deck and (y - cable < height / 60 or x % (width // 20) == 0):
            return steel
        return sky if y < height * 7 // 10 else water

    rows = [b"".join(colour(x, y) for x in range(width)) for y in range(height)]
    return encode_png(width, 3, rows)


def _text_block(request: AcceptedRequest, words: Collection[str]) -> Say:
    text = " ".join(describe(request.items, request.body.instructions, [tool.name for tool in request.tools]))
    if "tool" in words and not request.tools:
        text += " No tools were offered, so I call none."
    if "long" in words:
        match = _LONG.search(find_short_request(request.items))
        # Numbered words, one token each, so that the place where an answer is cut can be seen.
        count = int(match[1]) if match else LONG_TOKENS
        text += "".join(f" w{index}" for index in range(1, count + 1))
    if "cite" in words:
        text += f" See {_CITES[0][0]} and {_CITES[1][0]}."
        return Say(text, _CITES)
    return Say(text)
