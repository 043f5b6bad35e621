"""Reasoning: by what name it is told, whether it comes encrypted, and whether it may be sent back."""

from __future__ import annotations

from typing import Any

from tollbridge.doctor.session import (
    Finding,
    ProbeSession,
    Reply,
    failed,
    inconclusive,
    passed,
    reason,
    unknown,
)
from tollbridge.protocols.openresponses.wire import EVENTS
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import ReasoningEnded
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    DataPart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from tollbridge.types.quirks import SystemAs
from tollbridge.types.reasoning import Origin, bind, is_marker

# SECTION A small real image and a small real document, made here: nothing is fetched, and nobody's data is sent.

SIDE = 64  # pixels: smaller images are refused by some providers
_RED = (0xD0, 0x20, 0x20)


def image() -> DataPart:
    """A red square."""
    return DataPart(draw_png(SIDE, SIDE, _RED), "image/png", "red.png")


def document() -> DataPart:
    """A page that says “Toll: 42”."""
    content = b"BT /F1 24 Tf 20 40 Td (Toll: 42) Tj ET"
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    whole, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n" % (size, table, size)
    return DataPart(whole + end + b"startxref\n%d\n%%%%EOF\n" % len(whole), "application/pdf", "toll.pdf")


# SECTION What a message may hold: lists of parts, a system prompt, images, files.

_WORD = "Drawbridge"
_SYSTEM = Message(Role.SYSTEM, f"Whatever you are asked, your answer contains the word {_WORD}.")
_ROLES: tuple[SystemAs, ...] = ("developer", "system", "instructions", "user")
_CALLED: dict[SystemAs, str] = {
    "developer": "in the developer role",
    "system": "in the system role",
    "instructions": "as `instructions`",
    "user": "as words of the user",
}


async def check_arrays(bench: ProbeSession) -> Finding:
    """Strings are known to be accepted or refused by the first answer."""
    if bench.quirks.text_as == "array":
        return passed("Text is accepted as a list of parts alone.")
    heard = await bench.ask(bench.question("Say hello."), text_as="array")
    if heard.refusal is not None:
        return failed(
            f"Text as a list of parts is refused: {reason(heard.refusal)}",
            "Text alone travels as a string anyway.",
        )
    return (
        inconclusive(heard.error)
        if heard.error is not None
        else passed("Text is accepted as a string and as a list.")
    )


async def check_system(bench: ProbeSession) -> Finding:
    """The first role whose words are followed; where none is seen to be, the first that is accepted."""
    accepted: list[SystemAs] = []
    refusals: list[str] = []
    for role in _ROLES:
        heard = await bench.ask(bench.question(_SYSTEM, "Say hello."), system=role)
        if heard.refusal is not None:
            refusals.append(f"{_CALLED[role]}: {reason(heard.refusal)}")
            continue
        if heard.error is not None:
            return inconclusive(heard.error)
        if _WORD.lower() in heard.text.lower():
            return _found(role, refusals, "and followed")
        accepted.append(role)
        if role == "instructions":
            break  # as words of the user it can always be said
    if not accepted:
        return failed(f"A system prompt is refused {'; '.join(refusals)}", "It is left as it is.")
    return _found(accepted[0], refusals, "though the answer does not show that it was read")


def _found(role: SystemAs, refusals: list[str], how: str) -> Finding:
    if refusals and role != "developer":
        return failed(
            f"A system prompt is refused {refusals[0]}",
            f"It is sent {_CALLED[role]}, which is accepted, {how}.",
            system=role,
        )
    return passed(f"A system prompt is accepted {_CALLED[role]}, {how}.", system=role)


async def check_images(bench: ProbeSession) -> Finding:
    return await _attached(bench, image(), "image", "What colour is this?")


async def check_files(bench: ProbeSession) -> Finding:
    return await _attached(bench, document(), "file", "What does this page say?")


async def _attached(bench: ProbeSession, part: DataPart, what: str, question: str) -> Finding:
    told = bench.question(Message(Role.USER, (TextPart(question), part)))
    heard = await bench.ask(told)
    field = f"{what}s"
    if heard.refusal is not None:
        return failed(
            f"{bench.model} takes no {field}: {reason(heard.refusal)}",
            "A note is sent in the place of each.",
            **{field: False},
        )
    if heard.error is not None:
        return inconclusive(heard.error)
    named = "An image" if what == "image" else f"A {what}"
    return passed(f"{named} in a message is accepted.", **{field: True})


# SECTION Tools: whether they may be offered, how calls go back with their results, and what a result may hold.

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


async def check_tools(bench: ProbeSession) -> Finding:
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
            return inconclusive(heard.error)
        bench.called = bench.kept(heard) if heard.calls else ()
        called = "are called" if heard.calls else "may be offered, though the model called none"
        if refusal is None:
            return passed(f"Tools {called}.", **learned)
        return failed(f"Tools {called}, but {meaning}: {reason(refusal)}", "They are offered so.", **learned)
    why = reason(refusal) if refusal is not None else ""
    return failed(f"Tools are refused: {why}", "Agent mode will not work with this model; a plain chat will.")


async def check_history(bench: ProbeSession) -> Finding:
    """A turn with tools goes on only if the call and its result may be sent back."""
    question = bench.question(*a_round(bench, SUNNY), tools=(WEATHER,))
    heard = await bench.ask(question, calls=True)
    if heard.refusal is not None and _holds_thoughts(bench):
        # It may be the reasoning that is refused; how that is sent back is seen later.
        heard = await bench.ask(question, calls=True, reasoning=False)
    if heard.error is None:
        return passed("A call and its result are accepted in the history.", calls=True)
    if heard.refusal is None:
        return inconclusive(heard.error)
    refusal = heard.error
    if bench.is_of_this_call(refusal, question):
        return unsigned(refusal)
    heard = await bench.ask(question, calls=False)
    if heard.error is not None:
        return failed(
            f"A call and its result are refused in the history: {reason(refusal)}",
            "Told as text they are refused too: agent mode will not work with this model.",
        )
    return failed(
        f"A call and its result are refused in the history: {reason(refusal)}",
        "They are told as text, which is accepted.",
        calls=False,
    )


async def check_parallel_calls(bench: ProbeSession) -> Finding:
    asked = "What is the weather in Paris and in Rome? Call the tool get_weather twice, in parallel."
    heard = await bench.ask(bench.question(asked, tools=(WEATHER,), parallel_tool_calls=True))
    if heard.refusal is not None:
        return failed(
            f"`parallel_tool_calls` is refused: {reason(heard.refusal)}",
            "It is not sent.",
            without=bench.without("parallel_tool_calls"),
        )
    if heard.error is not None:
        return inconclusive(heard.error)
    if len(heard.calls) > 1:
        return passed(f"{len(heard.calls)} tools are called at once.")
    return passed("Several calls at once may be asked for, though the model made fewer.")


async def check_rich_results(bench: ProbeSession) -> Finding:
    if not bench.quirks.images:
        return passed("Images in results are not needed where no images are taken.")
    question = bench.question(*a_round(bench, TextPart("The sky now:"), image()), tools=(WEATHER,))
    heard = await bench.ask(question, rich_results=True)
    if heard.error is None:
        return passed("An image in the result of a tool is accepted.", rich_results=True)
    if heard.refusal is None:
        return inconclusive(heard.error)
    if bench.is_of_this_call(heard.error, question):
        return unsigned(heard.error)
    return failed(
        f"An image in the result of a tool is refused: {reason(heard.error)}",
        "It is sent in a message after the result.",
        rich_results=False,
    )


def a_round(
    bench: ProbeSession, *result: TextPart | DataPart, thought: ThinkingPart | None = None
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


def _holds_thoughts(bench: ProbeSession) -> bool:
    return any(isinstance(part, ThinkingPart) or is_marker(part) for part in bench.called)


# SECTION Reasoning: by what name it is told, whether it comes encrypted, and whether it may be sent back.

_THINK = "Think briefly: what is 17 times 3?"
# How reasoning may have to be sent back, and what it means.
_WAYS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"reasoning_ids": True, "reasoning_as": "summary"}, ""),
    ({"reasoning_ids": False, "reasoning_as": "summary"}, "without its id"),
    ({"reasoning_ids": True, "reasoning_as": "content"}, "as content"),
    ({"reasoning_ids": False, "reasoning_as": "content"}, "as content and without its id"),
)


async def check_reasoning(bench: ProbeSession) -> Finding:
    question = bench.question(_THINK, reasoning_effort="low")
    heard = await bench.ask(question, without=bench.without("include"))
    if heard.refusal is not None:
        return failed(
            f"A reasoning effort is refused: {reason(heard.refusal)}",
            "None is sent to this model.",
            without=bench.without("reasoning", "include"),
        )
    if heard.error is not None:
        return inconclusive(heard.error)
    bench.thinking = heard
    names = {str(event.get("type")) for event in heard.wire_events()}
    spoken = sorted(name for name in names if EVENTS.get(name) == "reasoning")
    if not spoken:
        return passed("A reasoning effort is accepted; no reasoning was shown.")
    return passed(f"Reasoning is told as {' and '.join(spoken)}.")


async def check_encrypted_reasoning(bench: ProbeSession) -> Finding:
    if "reasoning" in bench.quirks.without:
        return passed("Not needed: the model takes no reasoning effort.")
    heard = await bench.ask(bench.question(_THINK, reasoning_effort="low"))
    if heard.refusal is not None:
        return failed(
            f"Encrypted reasoning is not given: {reason(heard.refusal)}",
            "It is not asked for.",
            without=bench.without("include"),
        )
    if heard.error is not None:
        return inconclusive(heard.error)
    bench.thinking = heard
    if "encrypted_content" in (_proof(heard) or {}):
        return passed("Encrypted reasoning is given where it is asked for.")
    return passed("Encrypted reasoning may be asked for; none came.")


async def check_reasoning_replay(bench: ProbeSession) -> Finding:
    """Within a round of tools a model wants its own reasoning back: with its proof, or as plain text."""
    heard = bench.thinking
    if heard is None or not (heard.reasoning or _proof(heard)):
        return passed("Not needed: no reasoning was shown.")
    origin = Origin.of(bench.model or "", bench.client.base_url)
    thought = ThinkingPart(heard.reasoning, metadata=bind(origin, _proof(heard)))
    told = a_round(bench, SUNNY, thought=thought)
    question = bench.question(*told, tools=(WEATHER,), reasoning_effort="low")
    refusal = None
    for quirks, meaning in _WAYS:
        again = await bench.ask(question, reasoning=True, **quirks)
        if again.refusal is not None:
            refusal = refusal or again.error
            if again.error is not None and bench.is_of_this_call(again.error, question):
                return unsigned(again.error)
            continue
        if again.error is not None:
            return inconclusive(again.error)
        if refusal is None:
            return passed("Reasoning is accepted when it is sent back.", reasoning=True, **quirks)
        only = f"Reasoning is accepted back only {meaning}: {reason(refusal)}"
        return failed(only, "It is sent back so.", reasoning=True, **quirks)
    why = reason(refusal) if refusal is not None else ""
    return failed(
        f"Reasoning is refused when it is sent back: {why}",
        "It is not sent back, and its proof not asked for.",
        reasoning=False,
        without=bench.without("include"),
    )


def _proof(heard: Reply) -> dict[str, Any] | None:
    proofs = [event.metadata for event in heard.events if isinstance(event, ReasoningEnded)]
    return next((dict(proof) for proof in proofs if proof), None)
