"""What an answer is like: whether there is one at all, how its stream is framed, what it says of its toll."""

from __future__ import annotations

from typing import Any

from tollbridge.doctor.bench import Bench, Heard
from tollbridge.doctor.findings import Finding, amiss, not_seen, reason, well
from tollbridge.doctor.opening import HELLO
from tollbridge.gateways.openresponses.wire import EVENTS


async def text(bench: Bench) -> Finding:
    opening = bench.opening
    if opening is None:
        return amiss("There is no model to ask.", "Say which model to use with --model.")
    heard, refusal = opening.heard, opening.refusal
    if heard.error is not None:
        return amiss(
            f"{bench.model} does not answer: {reason(heard.error)}", "Without an answer there is no chat."
        )
    learned = {"text_as": "string", "without": frozenset(), **opening.quirks}
    said = f"{bench.model} answers in {heard.seconds:.1f} s"
    if refusal is not None:
        put = " and ".join(_put(**opening.quirks))
        return amiss(f"{said}, but only {put}: {reason(refusal)}", "It is put so.", **learned)
    empty = "" if heard.text else ", with no text (it may have thought too long)"
    return well(f"{said}{empty}.", **learned)


def _put(text_as: str = "", without: frozenset[str] = frozenset()) -> list[str]:
    listed = ["with text as a list of parts"] if text_as == "array" else []
    return listed + [f"without `{field}`" for field in sorted(without)]


async def stream(bench: Bench) -> Finding:
    heard = bench.first
    frames, events = heard.frames(), heard.wire_events()
    if not events:
        return amiss(
            "The answer came in one piece, though a stream was asked for.", "It is shown when it is whole."
        )
    oddities = [what for what, is_so in _oddities(frames, events).items() if is_so]
    if oddities:
        return well(f"{len(events)} events ({', '.join(oddities)}: odd, and read all the same).")
    return well(f"{len(events)} events, framed as the protocol says.")


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


async def usage(bench: Bench) -> Finding:
    heard = bench.first
    found = heard.finished.usage if heard.finished else None
    remedy = "Tollbridge counts by itself, and says that it is an estimate."
    if found is None or not found.known:
        if any(isinstance(end.get("usage"), dict) for end in _ends(heard)):
            return amiss("The answer says that it cost nothing: all its numbers are zero.", remedy)
        return amiss("The answer does not say what it cost.", remedy)
    details = {"cached tokens": found.cached_tokens, "reasoning tokens": found.reasoning_tokens}
    missing = [name for name, tokens in details.items() if tokens is None]
    told = f"{found.input_tokens} tokens in, {found.output_tokens} out"
    return well(f"{told}; {' and '.join(missing)} not told." if missing else f"{told}, with details.")


def _ends(heard: Heard) -> list[dict[str, Any]]:
    """The final responses, of which there should be one."""
    ends = [
        event["response"] for event in heard.wire_events() if EVENTS.get(str(event.get("type"))) == "ended"
    ]
    return [end for end in ends if isinstance(end, dict)]


async def input_tokens(bench: Bench) -> Finding:
    heard = await bench.count(bench.question(HELLO))
    if heard.refusal is not None:
        return amiss(
            f"Tokens are not counted beforehand: {reason(heard.refusal)}",
            "Tollbridge counts by itself.",
            input_tokens=False,
        )
    if heard.error is not None:
        return not_seen(heard.error)
    tokens = heard.number("input_tokens")
    if tokens is None:
        return amiss("The count of tokens is no number.", "Tollbridge counts by itself.", input_tokens=False)
    return well(f"The server counts tokens beforehand ({tokens} for a small request).", input_tokens=True)
