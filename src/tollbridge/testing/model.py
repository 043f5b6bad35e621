"""The scripted model.

The same request always gets the same answer. Words in the last user message select the kind of answer, see
`WORDS`. Without such a word, the model describes what it received.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache

import msgspec

from tollbridge.protocols.openresponses.schema import FunctionTool
from tollbridge.testing.conversation import (
    Hints,
    describe,
    describe_images,
    find_last_request,
    find_last_results,
    find_short_request,
    quote,
)
from tollbridge.testing.requests import AcceptedRequest
from tollbridge.testing.responses import Block, Call, Draw, Refuse, Say, ScriptedAnswer, Think, cut_answer
from tollbridge.testing.task import BugFix
from tollbridge.testing.values import make_value
from tollbridge.types.media import encode_png

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

# How often the reasoning text is repeated for each effort.
_REASONING_REPEATS = {"none": 0, "minimal": 1, "low": 1, "medium": 2, "high": 4, "xhigh": 8, "max": 8}
_CITES = (
    ("the first source", "https://example.com/first", "The first source"),
    ("the second source", "https://example.org/second", "The second source"),
)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# Words of a tool's name that a request does not have to contain.
_FILLER_WORDS = frozenset({"get", "set", "the", "a", "to", "of", "do", "copilot", "mcp"})


def make_answer(request: AcceptedRequest, words: Collection[str], pace: float) -> ScriptedAnswer:
    """Return the answer of the model, with `pace` seconds per token if it is slow.

    The `words` are keys of `WORDS` that apply in addition to the words of the last user message.
    """
    text = find_short_request(request.items)
    words = {*words, *(name for name, pattern in _PATTERNS.items() if pattern.search(text))}
    whole_answer = ScriptedAnswer(
        blocks=(*_reasoning_blocks(request, words), *_answer_blocks(request, words)),
        pace=pace if "slow" in words else 0.0,
    )
    limit = min(request.body.max_output_tokens or request.model["max_tokens"], request.model["max_tokens"])
    return cut_answer(whole_answer, min(limit, 16) if "incomplete" in words else limit)


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
        distance = min(abs(x - end) for end in (0, width // 2, width)) / (width // 4)
        cable = deck - (deck - top) * distance**2
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
        tokens = int(match[1]) if match else 1_000
        # Numbered words, one token each, show the place where an answer is cut.
        text += "".join(f" w{index}" for index in range(1, tokens + 1))
    if "cite" in words:
        text += f" See {_CITES[0][0]} and {_CITES[1][0]}."
        return Say(text, _CITES)
    return Say(text)


def choose_tools(request: AcceptedRequest, words: Collection[str]) -> list[FunctionTool]:
    """Return the tools that the model calls; `words` are the keys of `WORDS` that apply to the request."""
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
