"""The scripted model: the same request gets the same answer, and words in it ask for every kind of answer."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection

import msgspec

from tollbridge.core.pictures import draw_png
from tollbridge.gateway import prompt
from tollbridge.gateway.answers import Answer, Block, Call, Draw, Refuse, Say, Think, cut_answer
from tollbridge.gateway.arguments import make_value
from tollbridge.gateway.tools import choose_tools
from tollbridge.gateway.turns import Turn

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


def answer(turn: Turn, words: Collection[str] = (), pace: float = SLOW_SECONDS) -> Answer:
    """What the model says to a turn. `words` are asked for besides those in the last user message."""
    asked = {*words, *find_words(prompt.wish(turn.items))}
    said = Answer(
        blocks=(*_thoughts(turn, asked), *_speech(turn, asked)),
        pace=pace if "slow" in asked else 0.0,
    )
    limit = min(turn.body.max_output_tokens or turn.model["max_tokens"], turn.model["max_tokens"])
    return cut_answer(said, min(limit, INCOMPLETE_TOKENS) if "incomplete" in asked else limit)


def _thoughts(turn: Turn, asked: Collection[str]) -> list[Block]:
    effort = turn.body.reasoning.effort if turn.body.reasoning else None
    if "reasoning" not in turn.model["tags"] or effort == "none":
        return []
    if effort is None and "reasoning" not in asked:
        return []
    thought = f"The user said “{prompt.quote(prompt.last_request(turn.items))}”. I look at what I was given. "
    return [Think((thought * _ROUNDS[effort or "low"]).strip())]


def _speech(turn: Turn, asked: Collection[str]) -> list[Block]:
    if "refusal" in asked:
        return [Refuse("I refuse to answer this, because I was asked to refuse.")]
    calls = choose_tools(turn, asked)
    if calls:
        hint = prompt.Hints(turn.items)
        made = [(tool.name, make_value(tool.parameters or {"type": "object"}, hint)) for tool in calls]
        return [Call(name, msgspec.json.encode(value).decode()) for name, value in made]
    if turn.body.text and turn.body.text.format and turn.body.text.format.type != "text":
        schema = turn.body.text.format.schema or {"type": "object"}
        value = make_value(schema, prompt.Hints(turn.items), full=True)
        return [Say(msgspec.json.encode(value).decode())]
    if "image" in asked and "image-generation" in turn.model["tags"] and not prompt.images(turn.items):
        return [Draw(base64.b64encode(draw_png()).decode()), Say("Here is the image you asked for.")]
    return [_words_for(turn, asked)]


def _words_for(turn: Turn, asked: Collection[str]) -> Say:
    text = " ".join(prompt.describe(turn.items, turn.body.instructions, [tool.name for tool in turn.tools]))
    if "tool" in asked and not turn.tools:
        text += " No tools were offered, so I call none."
    if "long" in asked:
        found = _LONG.search(prompt.wish(turn.items))
        text += _fill(int(found[1]) if found else LONG_TOKENS)
    if "cite" in asked:
        text += f" See {_CITES[0][0]} and {_CITES[1][0]}."
        return Say(text, _CITES)
    return Say(text)


def _fill(tokens: int) -> str:
    """Numbered words, one token each, so that a reader can see where a long answer was cut."""
    return "".join(f" w{index}" for index in range(1, tokens + 1))
