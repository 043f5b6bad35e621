"""What else may be asked: encrypted reasoning, parameters, and to stop."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

from tollbridge.core.errors import BridgeError
from tollbridge.core.events import ReasoningEnded
from tollbridge.core.json import write_json
from tollbridge.core.messages import Message, Role, TextPart, ThinkingPart
from tollbridge.doctor.bench import ALONE, ANSWER_SECONDS, Bench, Heard
from tollbridge.doctor.findings import Finding, amiss, not_seen, reason, unknown, well
from tollbridge.doctor.opening import HELLO
from tollbridge.gateways.openresponses.encode import encode_request

_THINK = "Think briefly: what is 17 times 3?"
_PARAMETERS: dict[str, Any] = {"temperature": 0.5, "metadata": {"purpose": "doctor"}}
_MANY = "Count slowly from one to two hundred, one number a line: a long list, and nothing else."


async def encrypted(bench: Bench) -> Finding:
    if "reasoning" in bench.profile.leave_out:
        return well("Not needed: the model takes no reasoning effort.", include=False)
    question = bench.question(_THINK, reasoning_effort="low")
    heard = await bench.ask(question, include=True)
    if heard.is_refused and heard.error is not None:
        return amiss(
            f"Encrypted reasoning is not given: {reason(heard.error)}", "It is not asked for.", include=False
        )
    if heard.error is not None:
        return not_seen(heard.error)
    proofs = [event.metadata for event in heard.events if isinstance(event, ReasoningEnded)]
    proof = next((each for each in proofs if each and "encrypted_content" in each), None)
    if proof is None:
        return well("Encrypted reasoning may be asked for; none came.", include=True)
    return await _sent_back(bench, heard, ThinkingPart(heard.reasoning, metadata=proof))


async def _sent_back(bench: Bench, heard: Heard, thought: ThinkingPart) -> Finding:
    answer = Message(Role.ASSISTANT, (thought, TextPart(heard.text or "51")))
    again = await bench.ask(
        bench.question(_THINK, answer, "And plus 1?", reasoning_effort="low"), reasoning=True
    )
    if again.is_refused and again.error is not None:
        return amiss(
            f"Encrypted reasoning is given, but refused when it is sent back: {reason(again.error)}",
            "It is not sent back, and not asked for.",
            reasoning=False,
            include=False,
        )
    if again.error is not None:
        return not_seen(again.error)
    return well("Encrypted reasoning is given, and accepted back.", include=True, reasoning=True)


async def parameters(bench: Bench) -> Finding:
    refusals: dict[str, str] = {}
    for name, value in _PARAMETERS.items():
        heard = await bench.ask(bench.question(HELLO, **{name: value}))
        if heard.is_refused and heard.error is not None:
            refusals[name] = reason(heard.error)
        elif heard.error is not None:
            return not_seen(heard.error)
    if not refusals:
        return well(f"{' and '.join(_PARAMETERS)} are accepted.")
    return amiss(
        "; ".join(f"{name} is refused: {why}" for name, why in refusals.items()),
        "What is refused is not sent to this model.",
        leave_out=(*bench.profile.leave_out, *refusals),
    )


async def cancellation(bench: Bench) -> Finding:
    """Hangs up in the middle of an answer, and looks whether the server has time for the next."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            read = await _hang_up(bench)
    except (BridgeError, TimeoutError) as error:
        return not_seen(error) if isinstance(error, BridgeError) else unknown("No answer came to hang up on.")
    if not read:
        return unknown("There was no answer to hang up on.")
    began = time.monotonic()
    heard = await bench.ask(bench.question(HELLO))
    if heard.error is not None:
        return amiss(
            f"After hanging up, the next question fails: {reason(heard.error)}",
            "Stopping an answer may cost a while before the next; Tollbridge hangs up all the same.",
        )
    return well(f"Hung up in the middle; the next answer was whole after {time.monotonic() - began:.1f} s.")


async def _hang_up(bench: Bench) -> int:
    """How many bytes came before the line was cut."""
    request = bench.question(_MANY, max_output_tokens=400)
    body = write_json(encode_request(request, profile=bench.profile)).encode()
    bench.requests += 1
    async with (
        bench.client.send("POST", "/responses", body, headers=ALONE) as reply,
        aclosing(reply.chunks()) as chunks,
    ):
        async for chunk in chunks:
            return len(chunk)
    return 0
