"""Tools: whether they may be offered, how calls go back with their results, and what a result may hold."""

from __future__ import annotations

from typing import Any

from tollbridge.core.messages import Message, Role, TextPart, Tool, ToolCallPart, ToolResultPart
from tollbridge.doctor import samples
from tollbridge.doctor.bench import Bench
from tollbridge.doctor.findings import Finding, amiss, not_seen, reason, well

WEATHER = Tool(
    "get_weather",
    "Says what the weather is like in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
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
        if heard.is_refused:
            refusal = refusal or heard.error
            continue
        if heard.error is not None:
            return not_seen(heard.error)
        called = "are called" if heard.calls else "may be offered, though the model called none"
        if refusal is None:
            return well(f"Tools {called}.", **learned)
        return amiss(f"Tools {called}, but {meaning}: {reason(refusal)}", "They are offered so.", **learned)
    why = reason(refusal) if refusal is not None else ""
    return amiss(f"Tools are refused: {why}", "Agent mode will not work with this model; a plain chat will.")


async def history(bench: Bench) -> Finding:
    """A turn with tools goes on only if the call and its result may be sent back."""
    question = bench.question(
        *_round(ToolResultPart("call_doctor_1", "Sunny, 21 degrees.")), tools=(WEATHER,)
    )
    heard = await bench.ask(question, calls=True)
    if heard.error is None:
        return well("A call and its result are accepted in the history.", calls=True)
    if not heard.is_refused:
        return not_seen(heard.error)
    refusal = heard.error
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
    if heard.is_refused and heard.error is not None:
        return amiss(
            f"`parallel_tool_calls` is refused: {reason(heard.error)}",
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
    result = ToolResultPart("call_doctor_1", (TextPart("The sky now:"), samples.image()))
    question = bench.question(*_round(result), tools=(WEATHER,))
    heard = await bench.ask(question, rich_results=True)
    if heard.error is None:
        return well("An image in the result of a tool is accepted.", rich_results=True)
    if not heard.is_refused:
        return not_seen(heard.error)
    return amiss(
        f"An image in the result of a tool is refused: {reason(heard.error)}",
        "It is sent in a message after the result.",
        rich_results=False,
    )


def _round(result: ToolResultPart) -> tuple[Message | str, ...]:
    call = ToolCallPart("call_doctor_1", WEATHER.name, {"city": "Paris"})
    return ("What is the weather in Paris?", Message(Role.ASSISTANT, (call,)), Message(Role.USER, (result,)))
