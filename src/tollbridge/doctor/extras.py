"""What else may be asked: parameters, and to stop."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

from tollbridge.core.errors import BridgeError
from tollbridge.doctor.bench import ALONE, Bench
from tollbridge.doctor.findings import Finding, amiss, not_seen, reason, unknown, well
from tollbridge.doctor.opening import HELLO

_PARAMETERS: dict[str, Any] = {"temperature": 0.5, "metadata": {"purpose": "doctor"}}
_MANY = "Count slowly from one to two hundred, one number a line: a long list, and nothing else."


async def parameters(bench: Bench) -> Finding:
    refusals: dict[str, str] = {}
    for name, value in _PARAMETERS.items():
        heard = await bench.ask(bench.question(HELLO, **{name: value}))
        if heard.refusal is not None:
            refusals[name] = reason(heard.refusal)
        elif heard.error is not None:
            return not_seen(heard.error)
    if not refusals:
        return well(f"{' and '.join(_PARAMETERS)} are accepted.")
    return amiss(
        "; ".join(f"{name} is refused: {why}" for name, why in refusals.items()),
        "What is refused is not sent to this model.",
        without=bench.without(*refusals),
    )


async def cancellation(bench: Bench) -> Finding:
    """Hangs up in the middle of an answer, and looks whether the server has time for the next."""
    try:
        async with asyncio.timeout(bench.bounds.answer):
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
    body = bench.body(request)
    bench.requests += 1
    account = bench.account()
    try:
        async with (
            bench.client.send("POST", "/responses", body, headers=ALONE) as reply,
            aclosing(reply.chunks()) as chunks,
        ):
            async for chunk in chunks:
                return len(chunk)
        return 0
    finally:
        account.close("cancelled")
