"""Checks of what a request may contain: text, system prompt, images, files, tools and reasoning."""

from __future__ import annotations

from typing import Any

from tollbridge.doctor.session import (
    Arrival,
    Finding,
    ProbeSession,
    Reply,
    describe_error,
    failed,
    passed,
    rejected,
    unknown,
)
from tollbridge.protocols.openresponses.wire import EVENTS
from tollbridge.types.errors import BridgeError
from tollbridge.types.events import ReasoningEnded
from tollbridge.types.media import draw_png
from tollbridge.types.messages import (
    DataPart,
    Message,
    Origin,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    add_origin,
    is_marker,
)
from tollbridge.types.quirks import SystemAs

IMAGE_SIZE = 64  # pixels; some providers reject smaller images
TOLL = "4271"  # the number in the document; an answer that contains it has read the document


def make_image() -> DataPart:
    """Return a red square."""
    return DataPart(draw_png(IMAGE_SIZE, IMAGE_SIZE, (0xD0, 0x20, 0x20)), "image/png", "red.png")


def make_document() -> DataPart:
    """Return a PDF page with the text "Toll: 4271"."""
    page = b"BT /F1 24 Tf 20 40 Td (Toll: %s) Tj ET" % TOLL.encode()
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(page), page),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    pdf, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(pdf))
        pdf += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    xref = b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n" % (size, table, size)
    pdf += xref + b"startxref\n%d\n%%%%EOF\n" % len(pdf)
    return DataPart(pdf, "application/pdf", "toll.pdf")


_WORD = "Drawbridge"
_SYSTEM = Message(Role.SYSTEM, f"Whatever you are asked, your answer contains the word {_WORD}.")
# Compared with a shorter system prompt, because some models have a default one if there is none.
_SHORT_SYSTEM = Message(Role.SYSTEM, "Be kind.")
_GREETING = "Say hello."
_ATTACHMENT_QUESTION = "What does the attachment show?"
_ROLES: tuple[SystemAs, ...] = ("developer", "system", "instructions", "user")
_ROLE_NAMES: dict[SystemAs, str] = {
    "developer": "in the developer role",
    "system": "in the system role",
    "instructions": "as `instructions`",
    "user": "as a user message",
}


async def check_arrays(session: ProbeSession) -> Finding:
    """Check text as a list of parts. Whether text as a string is accepted is known from the first answer."""
    if session.measured.text_as == "array":
        return passed("Text is only accepted as a list of parts.")
    reply = await session.probe(session.build_request(_GREETING), text_as="array")
    if reply.rejection is not None:
        remedy = "Text without other parts is sent as a string anyway."
        return rejected("Text as a list of parts is rejected", reply.rejection, remedy)
    return passed("Text is accepted as a string and as a list.")


async def check_system(session: ProbeSession) -> Finding:
    """Find the first role whose system prompt is followed.

    If none is, find the first role whose system prompt adds input tokens, or else is accepted.
    """
    accepted: list[tuple[SystemAs, Reply]] = []
    rejections: list[str] = []
    for role in _ROLES:
        if role == "user" and accepted:
            break  # a user message is accepted by every server, so it is only tried if all else is rejected
        reply = await session.probe(session.build_request(_SYSTEM, _GREETING), system=role)
        if reply.rejection is not None:
            rejections.append(f"{_ROLE_NAMES[role]}: {describe_error(reply.rejection)}")
            continue
        if reply.quotes(_WORD):
            return _system_finding(role, rejections, "accepted and followed")
        accepted.append((role, reply))
    if not accepted:
        return failed(f"A system prompt is rejected {'; '.join(rejections)}", "Sent unchanged.")
    arrival = Arrival(None)
    for role, reply in accepted:
        shorter = session.build_request(_SHORT_SYSTEM, _GREETING)
        arrival = await session.compare(reply, shorter, system=role)
        if arrival.proven:
            return _system_finding(role, rejections, f"accepted ({arrival.reason}), not visibly followed")
    role = accepted[0][0]
    return _not_seen(session, arrival, "system", place=f" {_ROLE_NAMES[role]}", system=role)


def _system_finding(role: SystemAs, rejections: list[str], effect: str) -> Finding:
    if rejections and role != "developer":
        return failed(
            f"A system prompt is rejected {rejections[0]}",
            f"Sent {_ROLE_NAMES[role]} instead ({effect}).",
            system=role,
        )
    return passed(f"A system prompt {_ROLE_NAMES[role]}: {effect}.", system=role)


async def check_images(session: ProbeSession) -> Finding:
    return await _check_attachment(session, make_image(), "images")


async def check_files(session: ProbeSession) -> Finding:
    return await _check_attachment(session, make_document(), "files", TOLL)


async def _check_attachment(session: ProbeSession, part: DataPart, field: str, word: str = "") -> Finding:
    """Check that an attachment is accepted and arrives: the answer contains `word`, or it adds tokens."""
    message = Message(Role.USER, (TextPart(_ATTACHMENT_QUESTION), part))
    reply = await session.probe(session.build_request(message))
    if reply.rejection is not None:
        problem = f"{session.model} does not accept {field}"
        return rejected(problem, reply.rejection, "They are replaced by a note.", **{field: False})
    accepted: dict[str, Any] = {field: True}
    if word and reply.quotes(word):
        return passed(f"{field.capitalize()} in a message arrive; the answer quotes one.", **accepted)
    arrival = await session.compare(reply, session.build_request(_ATTACHMENT_QUESTION))
    if arrival.proven:
        return passed(f"{field.capitalize()} in a message arrive ({arrival.reason}).", **accepted)
    return _not_seen(session, arrival, field, "The model may not see them.", **accepted)


def _not_seen(
    session: ProbeSession,
    arrival: Arrival,
    feature: str,
    remedy: str = "",
    *,
    place: str = "",
    **learned: Any,
) -> Finding:
    """Return the finding for a feature that is accepted, but not seen to arrive at the model."""
    sentence = f"Accepted{place}, not seen to arrive ({arrival.reason})."
    learned["unproven"] = session.measured.unproven | {feature}
    return Finding("unproven", sentence, remedy, learned)


WEATHER = Tool(
    "get_weather",
    "Says what the weather is like in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
STATION = "Quillwort"  # planted in the result of the tool; an answer that contains it has read the result
WEATHER_RESULT = TextPart(f"Sunny, 21 degrees. Measured at the station {STATION}.")
_SHORT_RESULT = TextPart("Sunny.")
_WEATHER_QUESTION = (
    "What is the weather in Paris? Call the tool get_weather, and name the station in your answer."
)
# The forms in which tools are sent until one is accepted: request fields, quirks, and a description.
_TOOL_FORMS: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({"tool_choice": "required"}, {}, ""),
    ({}, {"without": "tool_choice"}, "without `tool_choice`"),
    ({"tool_choice": "required"}, {"tools_as": "nested"}, "nested under `function`"),
    (
        {},
        {"tools_as": "nested", "without": "tool_choice"},
        "nested under `function` and without `tool_choice`",
    ),
)


async def check_tools(session: ProbeSession) -> Finding:
    rejection = None
    for fields, quirks, form in _TOOL_FORMS:
        learned = {"tools_as": "flat", **quirks}
        if "without" in quirks:
            learned["without"] = session.without(quirks["without"])
        request = session.build_request(_WEATHER_QUESTION, tools=(WEATHER,), **fields)
        reply = await session.probe(request, **learned)
        if reply.rejection is not None:
            rejection = rejection or reply.error
            continue
        session.tool_call_parts = session.answer_parts(reply) if reply.calls else ()
        if rejection is not None:
            effect = "are called" if reply.calls else "are accepted"
            return rejected(f"Tools {effect} only {form}", rejection, "Tollbridge does that.", **learned)
        effect = "called" if reply.calls else "accepted, but the model did not call any"
        return passed(f"Tools are {effect}.", **learned)
    remedy = "Agent mode will not work with this model; plain chat will."
    return rejected("Tools are rejected", rejection, remedy)


async def check_history(session: ProbeSession) -> Finding:
    """Check that a tool call and its result are accepted in the input and arrive, as agent mode requires."""
    request = session.build_request(*tool_round(session, WEATHER_RESULT), tools=(WEATHER,))
    quirks: dict[str, Any] = {"calls": True}
    reply = await session.probe(request, **quirks)
    parts = session.tool_call_parts
    if reply.rejection is not None and any(
        isinstance(part, ThinkingPart) or is_marker(part) for part in parts
    ):
        # The reasoning may be the reason for the rejection; a later check tests it.
        quirks["reasoning"] = False
        reply = await session.probe(request, **quirks)
    if reply.error is None:
        return await _find_result_arrival(session, reply, quirks)
    if session.concerns_this_call(reply.error, request):
        return _unsigned_call_finding(reply.error)
    problem = "A tool call and its result are rejected in the history"
    as_text = await session.ask(request, calls=False)
    if as_text.error is not None:
        remedy = "Rejected as text too: agent mode will not work with this model."
        return rejected(problem, reply.error, remedy)
    return rejected(problem, reply.error, "Sent as text instead (accepted).", calls=False)


async def _find_result_arrival(session: ProbeSession, reply: Reply, quirks: dict[str, Any]) -> Finding:
    """Check that the model has seen the result of a tool: without it, an agent calls the tool forever."""
    subject = "A tool call and its result in the history"
    if reply.quotes(STATION):
        return passed(f"{subject} arrive; the answer quotes the result.", calls=True)
    shorter = session.build_request(*tool_round(session, _SHORT_RESULT), tools=(WEATHER,))
    arrival = await session.compare(reply, shorter, **quirks)
    if arrival.proven:
        return passed(f"{subject} arrive (the result adds {arrival.reason}).", calls=True)
    # Without tools, so that the model can only answer.
    without_tools = session.build_request(*tool_round(session, WEATHER_RESULT))
    as_text = await session.ask(without_tools, **{**quirks, "calls": False})
    if as_text.error is None and as_text.quotes(STATION):
        return failed(
            f"{subject} are accepted, but do not arrive.", "Sent as text, which arrives.", calls=False
        )
    return _not_seen(session, arrival, "calls", "An agent may repeat its calls.", calls=True)


async def check_parallel_calls(session: ProbeSession) -> Finding:
    prompt = "What is the weather in Paris and in Rome? Call the tool get_weather twice, in parallel."
    reply = await session.probe(session.build_request(prompt, tools=(WEATHER,), parallel_tool_calls=True))
    if reply.rejection is not None:
        without = session.without("parallel_tool_calls")
        problem = "`parallel_tool_calls` is rejected"
        return rejected(problem, reply.rejection, "It is not sent.", without=without)
    if len(reply.calls) > 1:
        return passed(f"The model made {len(reply.calls)} calls in parallel.")
    return passed("Parallel calls are accepted, but the model did not make any.")


async def check_rich_results(session: ProbeSession) -> Finding:
    if not session.measured.images:
        return passed("Not needed: images are not accepted.")
    plain = session.build_request(*tool_round(session, WEATHER_RESULT), tools=(WEATHER,))
    request = session.build_request(*tool_round(session, WEATHER_RESULT, make_image()), tools=(WEATHER,))
    reply = await session.probe(request, rich_results=True)
    if reply.error is not None:
        if session.concerns_this_call(reply.error, request):
            return _unsigned_call_finding(reply.error)
        remedy = "They are sent in a message after the result."
        return rejected("Images in tool results are rejected", reply.error, remedy, rich_results=False)
    arrival = await session.compare(reply, plain, rich_results=True)
    if arrival.proven:
        return passed(f"Images in tool results arrive ({arrival.reason}).", rich_results=True)
    if arrival.added is not None and "images" not in session.measured.unproven:
        return failed(
            "Images in tool results are accepted, but do not arrive.",
            "They are sent in a message after the result, where they arrive.",
            rich_results=False,
        )
    return _not_seen(session, arrival, "rich_results", "The model may not see them.", rich_results=True)


def tool_round(
    session: ProbeSession, *result: TextPart | DataPart, reasoning: ThinkingPart | None = None
) -> tuple[Message | str, ...]:
    """Return the messages of a tool call and its result, as an editor sends them.

    The call is the model's own, because some models sign their calls. If the model made no call, a generated
    one is used. `reasoning` replaces the reasoning that came with the call.
    """
    answer = session.tool_call_parts or (ToolCallPart("call_doctor_1", WEATHER.name, {"city": "Paris"}),)
    if reasoning is not None:
        answer = (reasoning, *(part for part in answer if isinstance(part, ToolCallPart)))
    results = [ToolResultPart(part.call_id, result) for part in answer if isinstance(part, ToolCallPart)]
    return (_WEATHER_QUESTION, Message(Role.ASSISTANT, answer), Message(Role.USER, tuple(results)))


def _unsigned_call_finding(rejection: BridgeError) -> Finding:
    return unknown(
        f"A call without the model's signature is rejected: {describe_error(rejection)}",
        "Signed calls are returned unchanged; unsigned calls are sent as text.",
    )


_REASONING_QUESTION = "Think briefly: what is 17 times 3?"
# The forms in which reasoning is sent back until one is accepted, each with a description.
_REASONING_FORMS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"reasoning_ids": True, "reasoning_as": "summary"}, ""),
    ({"reasoning_ids": False, "reasoning_as": "summary"}, "without its id"),
    ({"reasoning_ids": True, "reasoning_as": "content"}, "as content"),
    ({"reasoning_ids": False, "reasoning_as": "content"}, "as content and without its id"),
)


async def check_reasoning(session: ProbeSession) -> Finding:
    request = session.build_request(_REASONING_QUESTION, reasoning_effort="low")
    reply = await session.probe(request, without=session.without("include"))
    if reply.rejection is not None:
        without = session.without("reasoning", "include")
        problem = "The reasoning effort is rejected"
        return rejected(problem, reply.rejection, "It is not sent to this model.", without=without)
    session.reasoning_reply = reply
    names = {str(event.get("type")) for event in reply.wire_events()}
    reasoning_names = sorted(name for name in names if EVENTS.get(name) == "reasoning")
    if not reasoning_names:
        return passed("The reasoning effort is accepted; no reasoning was returned.")
    return passed(f"Reasoning is reported as {' and '.join(reasoning_names)}.")


async def check_encrypted_reasoning(session: ProbeSession) -> Finding:
    if "reasoning" in session.measured.without:
        return passed("Not needed: the model does not accept a reasoning effort.")
    reply = await session.probe(session.build_request(_REASONING_QUESTION, reasoning_effort="low"))
    if reply.rejection is not None:
        problem, without = "Encrypted reasoning is not supported", session.without("include")
        return rejected(problem, reply.rejection, "It is not requested.", without=without)
    session.reasoning_reply = reply
    if "encrypted_content" in (_proof(reply) or {}):
        return passed("Encrypted reasoning is supported.")
    return passed("Encrypted reasoning can be requested, but none was returned.")


async def check_reasoning_replay(session: ProbeSession) -> Finding:
    """Find the form in which the reasoning before a tool call is accepted in the input and arrives.

    Models require their own reasoning there, with its signature or as plain text. It arrives if it adds input
    tokens to the same request without reasoning.
    """
    reply = session.reasoning_reply
    if reply is None or not (reply.answer.reasoning or _proof(reply)):
        return passed("Not needed: no reasoning was returned.")
    origin = Origin.of(session.model or "", session.client.base_url)
    reasoning = ThinkingPart(reply.answer.reasoning, metadata=add_origin(origin, _proof(reply)))
    messages = tool_round(session, WEATHER_RESULT, reasoning=reasoning)
    request = session.build_request(*messages, tools=(WEATHER,), reasoning_effort="low")
    if session.body(request, reasoning=True) == session.body(request, reasoning=False):
        return passed("Not needed: reasoning is only sent before tool calls, which are sent as text.")
    rejection = None
    accepted: list[tuple[dict[str, Any], str, Arrival]] = []
    for quirks, form in _REASONING_FORMS:
        if any(quirks["reasoning_as"] == tried["reasoning_as"] for tried, _, _ in accepted):
            continue  # an id changes whether reasoning is accepted, not whether it arrives
        answer = await session.probe(request, reasoning=True, **quirks)
        if answer.rejection is not None:
            rejection = rejection or answer.rejection
            if session.concerns_this_call(answer.rejection, request):
                return _unsigned_call_finding(answer.rejection)
            continue
        arrival = await session.compare(answer, request, reasoning=False)
        accepted.append((quirks, form, arrival))
        if arrival.proven or arrival.added is None:
            break
    if accepted:
        return _reasoning_finding(session, accepted, rejection)
    problem = "Reasoning is rejected in the input"
    remedy = "Tollbridge will not send it or request signatures."
    return rejected(problem, rejection, remedy, reasoning=False, without=session.without("include"))


def _reasoning_finding(
    session: ProbeSession, accepted: list[tuple[dict[str, Any], str, Arrival]], rejection: BridgeError | None
) -> Finding:
    """Return the finding for the first form that arrives, or else for the first that is accepted."""
    quirks, form, arrival = next((each for each in accepted if each[2].proven), accepted[0])
    learned = {"reasoning": True, **quirks}
    if rejection is not None:
        effect = ""
        if not arrival.proven:
            effect = f" and not seen to arrive ({arrival.reason})"
            learned["unproven"] = session.measured.unproven | {"reasoning"}
        problem = f"Reasoning is accepted in the input only {form}{effect}"
        return rejected(problem, rejection, "Tollbridge does that.", **learned)
    if not arrival.proven:
        return _not_seen(session, arrival, "reasoning", **learned)
    return passed(f"Reasoning in the input arrives{form and ' '}{form} ({arrival.reason}).", **learned)


def _proof(reply: Reply) -> dict[str, Any] | None:
    """Return the signature or encrypted content of the reasoning in a reply."""
    proofs = [event.metadata for event in reply.answer.events if isinstance(event, ReasoningEnded)]
    return next((dict(proof) for proof in proofs if proof), None)
