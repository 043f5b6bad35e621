"""Tools: whether they may be offered, how calls go back with their results, and what a result may hold."""

from __future__ import annotations

from typing import Any

from tollbridge.core.errors import BridgeError
from tollbridge.core.messages import (
    DataPart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.core.reasoning import is_marker
from tollbridge.doctor import samples
from tollbridge.doctor.bench import Bench
from tollbridge.doctor.findings import Finding, amiss, not_seen, reason, unknown, well

WEATHER = Tool(
    "get_weather",
    "Says what the weather is like in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
# What a tool says.
SUNNY = TextPart("Sunny, 21 degrees.")
_ASKED = "What is the weather in Paris? Call the tool get_weather."
# How tools may have to be offered, and what it means.
_OFFERS: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({"tool_choice": "required"}, {}, ""),
    ({}, {"without": "tool_choice"}, "`tool_choice` is refused"),
    ({"tool_choice": "required"}, {"tools_as": "nested"}, "tools must be nested under `function`"),
    ({}, {"tools_as": "nested", "without": "tool_choice"}, "tools must be nested, without `tool_choice`"),
)


async def tools(bench: Bench) -> Finding:
    refusal = None
    for fields, quirks, meaning in _OFFERS:
        learned = {"tools_as": "flat", **quirks}
        if "without" in quirks:
            learned["without"] = bench.without(quirks["without"])
        heard = await bench.ask(bench.question(_ASKED, tools=(WEATHER,), **fields), **learned)
        if heard.refusal is not None:
            refusal = refusal or heard.error
            continue
        if heard.error is not None:
            return not_seen(heard.error)
        bench.called = bench.kept(heard) if heard.calls else ()
        called = "are called" if heard.calls else "may be offered, though the model called none"
        if refusal is None:
            return well(f"Tools {called}.", **learned)
        return amiss(f"Tools {called}, but {meaning}: {reason(refusal)}", "They are offered so.", **learned)
    why = reason(refusal) if refusal is not None else ""
    return amiss(f"Tools are refused: {why}", "Agent mode will not work with this model; a plain chat will.")


async def history(bench: Bench) -> Finding:
    """A turn with tools goes on only if the call and its result may be sent back."""
    question = bench.question(*a_round(bench, SUNNY), tools=(WEATHER,))
    heard = await bench.ask(question, calls=True)
    if heard.refusal is not None and _holds_thoughts(bench):
        # It may be the reasoning that is refused; how that is sent back is seen later.
        heard = await bench.ask(question, calls=True, reasoning=False)
    if heard.error is None:
        return well("A call and its result are accepted in the history.", calls=True)
    if heard.refusal is None:
        return not_seen(heard.error)
    refusal = heard.error
    if bench.is_of_this_call(refusal, question):
        return unsigned(refusal)
    heard = await bench.ask(question, calls=False)
    if heard.error is not None:
        return amiss(
            f"A call and its result are refused in the history: {reason(refusal)}",
            "Told as text they are refused too: agent mode will not work with this model.",
        )
    return amiss(
        f"A call and its result are refused in the history: {reason(refusal)}",
        "They are told as text, which is accepted.",
        calls=False,
    )


async def parallel(bench: Bench) -> Finding:
    asked = "What is the weather in Paris and in Rome? Call the tool get_weather twice, in parallel."
    heard = await bench.ask(bench.question(asked, tools=(WEATHER,), parallel_tool_calls=True))
    if heard.refusal is not None:
        return amiss(
            f"`parallel_tool_calls` is refused: {reason(heard.refusal)}",
            "It is not sent.",
            without=bench.without("parallel_tool_calls"),
        )
    if heard.error is not None:
        return not_seen(heard.error)
    if len(heard.calls) > 1:
        return well(f"{len(heard.calls)} tools are called at once.")
    return well("Several calls at once may be asked for, though the model made fewer.")


async def rich_results(bench: Bench) -> Finding:
    if not bench.quirks.images:
        return well("Images in results are not needed where no images are taken.")
    question = bench.question(*a_round(bench, TextPart("The sky now:"), samples.image()), tools=(WEATHER,))
    heard = await bench.ask(question, rich_results=True)
    if heard.error is None:
        return well("An image in the result of a tool is accepted.", rich_results=True)
    if heard.refusal is None:
        return not_seen(heard.error)
    if bench.is_of_this_call(heard.error, question):
        return unsigned(heard.error)
    return amiss(
        f"An image in the result of a tool is refused: {reason(heard.error)}",
        "It is sent in a message after the result.",
        rich_results=False,
    )


def a_round(
    bench: Bench, *result: TextPart | DataPart, thought: ThinkingPart | None = None
) -> tuple[Message | str, ...]:
    """A round of tools as an editor sends it back. The call is the model's own, with all that came with it,
    or with the thought given; one of ours only where it made none: some models sign their calls."""
    made = bench.called or (ToolCallPart("call_doctor_1", WEATHER.name, {"city": "Paris"}),)
    if thought is not None:
        made = (thought, *(part for part in made if isinstance(part, ToolCallPart)))
    results = [ToolResultPart(part.call_id, result) for part in made if isinstance(part, ToolCallPart)]
    return (_ASKED, Message(Role.ASSISTANT, made), Message(Role.USER, tuple(results)))


def unsigned(refusal: BridgeError) -> Finding:
    return unknown(
        f"A call without the model's signature is refused: {reason(refusal)}",
        "Calls that it signs go back as they came; one that it did not sign is told as text.",
    )


def _holds_thoughts(bench: Bench) -> bool:
    return any(isinstance(part, ThinkingPart) or is_marker(part) for part in bench.called)
