"""What else may be asked: parameters, and to stop."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

from tollbridge.compat.profiles import KnownServer, recognize_server
from tollbridge.doctor.session import (
    ALONE,
    HELLO,
    Finding,
    ProbeSession,
    Reply,
    failed,
    find_first_answer,
    inconclusive,
    passed,
    reason,
    unknown,
)
from tollbridge.protocols.model_list import read_models
from tollbridge.protocols.openresponses.wire import EVENTS
from tollbridge.types.errors import BridgeError
from tollbridge.types.models import Model

# SECTION The way to the server: whether it answers, how it is reached, what it lists, whether the key is good.

_KEY = "Set TOLLBRIDGE_API_KEY (or AI_GATEWAY_API_KEY) to a key that this gateway accepts."
_ADDRESS = "Check the base URL: an address usually ends in /v1. Or say which model to use with --model."
# Where the list of models is refused and no model was named.
_REMEDIES = {"authentication": _KEY, "permission": _KEY, "not_found": _ADDRESS}
# What the first request says of the way, where it fails; anything else is the server's own word.
_NO_WAY = frozenset({"network", "timeout", "disconnected"})


async def check_reach(bench: ProbeSession) -> Finding:
    bench.listed = heard = await bench.send("GET", "/models")
    if heard.error is not None and (heard.status is None or heard.error.kind in _NO_WAY):
        return failed(
            reason(heard.error), "Check the base URL, the network connection and the proxy settings."
        )
    server = heard.headers.get("server")
    named = f" ({server[:60]})" if server else ""
    return passed(f"{_place(bench)} answers{named}, in {heard.seconds * 1000:.0f} ms.")


async def check_tls_and_proxy(bench: ProbeSession) -> Finding:
    proxy = bench.client.proxy()
    through = f"through the proxy {proxy}" if proxy else "with no proxy"
    if urlsplit(bench.client.base_url).scheme == "https":
        return passed(f"https, with a certificate that this machine trusts, {through}.")
    return passed(f"Plain http, {through}.")


async def check_models(bench: ProbeSession) -> Finding:
    """Also chooses the model, where none was asked for."""
    found, error = _read(bench.listed)
    chat = [model for model in found if model.is_chat_model]
    bench.models = tuple(found)
    asked, bench.model = bench.model, bench.model or _pick(chat)
    chosen = f"; examined with {bench.model}" if bench.model and not asked else ""
    if error is not None or not chat:
        why = reason(error) if error is not None else "The list of models is empty."
        if bench.model:
            return failed(why, "Models must be named by hand.")
        kind = error.kind if error is not None else ""
        return failed(why, _REMEDIES.get(kind, "Say which model to use with --model."))
    if asked and asked not in [model.id for model in found]:
        return unknown(f"{len(found)} listed, and {asked} is not among them.", "It is asked all the same.")
    windows = sum(model.context_window is not None for model in chat)
    sized = f", the window of {windows} known" if windows else ", none with its window"
    return passed(f"{len(found)} listed{sized}{chosen}.")


async def check_key(bench: ProbeSession) -> Finding:
    """The list of models is often open to anyone: only an answer shows what a key is worth."""
    sent = "The key" if bench.client.has_key else "No key"
    if bench.model is None:
        heard = bench.listed or Reply()
        if heard.error is None or heard.error.kind not in ("authentication", "permission"):
            return unknown("Could not be seen without a model.")
    else:
        bench.opening = await find_first_answer(bench)
        heard = bench.opening.heard
    if heard.error is None:
        return passed(f"{sent} was sent, and that is accepted.")
    if heard.error.kind in ("authentication", "permission"):
        return failed(f"{sent} was sent, and the server says: {reason(heard.error)}", _KEY)
    return inconclusive(heard.error)


def _place(bench: ProbeSession) -> str:
    return urlsplit(bench.client.base_url).netloc.rpartition("@")[2]


def _read(heard: Reply | None) -> tuple[list[Model], BridgeError | None]:
    if heard is None or heard.error is not None:
        return [], heard.error if heard else None
    try:
        return read_models(heard.body), None
    except BridgeError as error:
        return [], error


def _pick(chat: list[Model]) -> str | None:
    """The cheapest that uses tools, where prices are known; else the first."""
    able = [model for model in chat if model.capabilities.tools] or chat
    priced = [model for model in able if model.prices and model.prices.output is not None]
    cheapest = min(priced, key=lambda model: (model.prices and model.prices.output) or 0, default=None)
    return cheapest.id if cheapest else able[0].id if able else None


def recognise(bench: ProbeSession) -> KnownServer | None:
    """The server, where it is one that is known: by what it says of itself, or by where it is."""
    replies = (bench.listed or Reply(), bench.first)
    headers = {name: value for heard in replies for name, value in heard.headers.items()}
    owners = {model.owner for model in bench.models if model.owner}
    return recognize_server(bench.client.base_url, headers, owners)


# SECTION What an answer is like: whether there is one at all, how its stream is framed, what it says of its toll.


async def check_text(bench: ProbeSession) -> Finding:
    opening = bench.opening
    if opening is None:
        return failed("There is no model to ask.", "Say which model to use with --model.")
    heard, refusal = opening.heard, opening.refusal
    if heard.error is not None:
        return failed(
            f"{bench.model} does not answer: {reason(heard.error)}", "Without an answer there is no chat."
        )
    learned = {"text_as": "string", "without": frozenset(), **opening.quirks}
    said = f"{bench.model} answers in {heard.seconds:.1f} s"
    if refusal is not None:
        put = " and ".join(_put(**opening.quirks))
        return failed(f"{said}, but only {put}: {reason(refusal)}", "It is put so.", **learned)
    empty = "" if heard.text else ", with no text (it may have thought too long)"
    return passed(f"{said}{empty}.", **learned)


def _put(text_as: str = "", without: frozenset[str] = frozenset()) -> list[str]:
    listed = ["with text as a list of parts"] if text_as == "array" else []
    return listed + [f"without `{field}`" for field in sorted(without)]


async def check_stream(bench: ProbeSession) -> Finding:
    heard = bench.first
    frames, events = heard.frames(), heard.wire_events()
    if not events:
        return failed(
            "The answer came in one piece, though a stream was asked for.", "It is shown when it is whole."
        )
    oddities = [what for what, is_so in _oddities(frames, events).items() if is_so]
    if oddities:
        return passed(f"{len(events)} events ({', '.join(oddities)}: odd, and read all the same).")
    return passed(f"{len(events)} events, framed as the protocol says.")


def _oddities(frames: list[tuple[bytes, bytes]], events: list[dict[str, Any]]) -> dict[str, bool]:
    numbers = [event.get("sequence_number") for event in events]
    whole = [number for number in numbers if isinstance(number, int)]
    deltas = [event for event in events if str(event.get("type", "")).endswith(".delta")]
    strange = sorted({str(event.get("type")) for event in events} - set(EVENTS))
    return {
        "no event: lines": not any(name for name, _ in frames),
        "no [DONE]": not any(data.strip() == b"[DONE]" for _, data in frames),
        "no sequence numbers": not whole,
        "sequence numbers missing in places": bool(whole) and len(whole) < len(numbers),
        "sequence numbers out of order": whole != sorted(set(whole)),
        "no output_index": any("output_index" not in event for event in deltas),
        f"unknown events ({', '.join(strange)[:80]})": bool(strange),
    }


async def check_usage(bench: ProbeSession) -> Finding:
    heard = bench.first
    found = heard.finished.usage if heard.finished else None
    remedy = "Tollbridge counts by itself, and says that it is an estimate."
    if found is None or not found.known:
        if any(isinstance(end.get("usage"), dict) for end in _ends(heard)):
            return failed("The answer says that it cost nothing: all its numbers are zero.", remedy)
        return failed("The answer does not say what it cost.", remedy)
    details = {"cached tokens": found.cached_tokens, "reasoning tokens": found.reasoning_tokens}
    missing = [name for name, tokens in details.items() if tokens is None]
    told = f"{found.input_tokens} tokens in, {found.output_tokens} out"
    return passed(f"{told}; {' and '.join(missing)} not told." if missing else f"{told}, with details.")


def _ends(heard: Reply) -> list[dict[str, Any]]:
    """The final responses, of which there should be one."""
    ends = [
        event["response"] for event in heard.wire_events() if EVENTS.get(str(event.get("type"))) == "ended"
    ]
    return [end for end in ends if isinstance(end, dict)]


async def check_input_tokens(bench: ProbeSession) -> Finding:
    heard = await bench.count(bench.question(HELLO))
    if heard.refusal is not None:
        return failed(
            f"Tokens are not counted beforehand: {reason(heard.refusal)}",
            "Tollbridge counts by itself.",
            input_tokens=False,
        )
    if heard.error is not None:
        return inconclusive(heard.error)
    tokens = heard.number("input_tokens")
    if tokens is None:
        return failed("The count of tokens is no number.", "Tollbridge counts by itself.", input_tokens=False)
    return passed(f"The server counts tokens beforehand ({tokens} for a small request).", input_tokens=True)


# SECTION What else may be asked: parameters, and to stop.

_PARAMETERS: dict[str, Any] = {"temperature": 0.5, "metadata": {"purpose": "doctor"}}
_MANY = "Count slowly from one to two hundred, one number a line: a long list, and nothing else."


async def check_parameters(bench: ProbeSession) -> Finding:
    refusals: dict[str, str] = {}
    for name, value in _PARAMETERS.items():
        heard = await bench.ask(bench.question(HELLO, **{name: value}))
        if heard.refusal is not None:
            refusals[name] = reason(heard.refusal)
        elif heard.error is not None:
            return inconclusive(heard.error)
    if not refusals:
        return passed(f"{' and '.join(_PARAMETERS)} are accepted.")
    return failed(
        "; ".join(f"{name} is refused: {why}" for name, why in refusals.items()),
        "What is refused is not sent to this model.",
        without=bench.without(*refusals),
    )


async def check_cancellation(bench: ProbeSession) -> Finding:
    """Hangs up in the middle of an answer, and looks whether the server has time for the next."""
    try:
        async with asyncio.timeout(bench.bounds.answer):
            read = await _hang_up(bench)
    except (BridgeError, TimeoutError) as error:
        return (
            inconclusive(error)
            if isinstance(error, BridgeError)
            else unknown("No answer came to hang up on.")
        )
    if not read:
        return unknown("There was no answer to hang up on.")
    began = time.monotonic()
    heard = await bench.ask(bench.question(HELLO))
    if heard.error is not None:
        return failed(
            f"After hanging up, the next question fails: {reason(heard.error)}",
            "Stopping an answer may cost a while before the next; Tollbridge hangs up all the same.",
        )
    return passed(f"Hung up in the middle; the next answer was whole after {time.monotonic() - began:.1f} s.")


async def _hang_up(bench: ProbeSession) -> int:
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
