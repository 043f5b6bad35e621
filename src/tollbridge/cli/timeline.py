"""The recording of a turn, shown: what happened when, and whether the code of today makes the same of it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, assert_never

import click

from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import Paint, counted, folded, one_line
from tollbridge.core.json import read_json, write_json
from tollbridge.core.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from tollbridge.recorder.lines import Answered, AnyLine, Begun, Cut, Ended, Parts, Received, Sent
from tollbridge.recorder.playing import Played, difference, play
from tollbridge.recorder.reading import Recording, read_recording

INTERRUPTED = "interrupted"  # as the ledger calls it
_MOST = 20  # differences of one request that are shown
_LONGEST = 100  # of a part, on the line that shows it


def replay_turn(path: Path, diff: bool, as_json: bool) -> bool:
    """Play it and show it. Whether nothing differs, where that was asked."""
    recording = read_recording(path)
    played = asyncio.run(play(recording))
    parts = recording.parts
    # Of a turn that was cut, the last bytes may be there without the parts they made.
    differences = difference(parts, played.parts if recording.ended else played.parts[: len(parts)])
    same = not differences and not any(played.requests) and _same_ending(recording, played)
    if as_json:
        click.echo(to_json(_as_json(path, recording, played, same)))
    else:
        _show(path, recording, played)
        if diff:
            _show_requests(played)
            _show_difference(differences, same, len(played.parts))
    return same or not diff


def _same_ending(recording: Recording, played: Played) -> bool:
    """How it ended then and now. One that was stopped, or that the network ended, cannot end so again."""
    ended = recording.ended
    if ended is None or ended.outcome == "cancelled":
        return True
    kind = (ended.error or {}).get("kind")
    if kind in ("network", "timeout", "disconnected"):
        return played.error is not None
    return kind == (played.error.kind if played.error else None)


def _as_json(path: Path, recording: Recording, played: Played, same: bool) -> dict[str, Any]:
    ended, error = recording.ended, played.error
    return {
        "file": str(path),
        "same": same,
        "outcome": INTERRUPTED if ended is None else ended.outcome,
        "error": None if error is None else {"kind": error.kind, "message": error.message},
        "finish_reason": played.turn.finish_reason if played.turn else None,
        "usage": played.turn.usage if played.turn else None,
        "changes": played.turn.changes if played.turn else (),
        "requests": [
            [{"place": place, "then": then, "now": now} for place, then, now in found]
            for found in played.requests
        ],
        "parts": [_plain(part) for part in played.parts],
    }


def _plain(part: Part) -> Any:
    return read_json(write_json(part))


def _show(path: Path, recording: Recording, played: Played) -> None:
    begun = recording.begun
    paint = Paint(sys.stdout)
    click.echo(f"{paint.bold}{one_line(str(path))}{paint.plain}")
    redacted = ", content blotted out" if begun.redacted else ""
    click.echo(f"{paint.dim}recorded by Tollbridge {one_line(begun.tollbridge)}{redacted}{paint.plain}")
    for line in recording.lines:
        what, told = _told(line)
        when = f"{line.at:>9.3f} s  {what:<9}"
        click.echo(f"{paint.dim}{when}{paint.plain}{folded(one_line(told), sys.stdout, len(when))}")
    if recording.ended is None:
        click.echo(f"{paint.dim}{'':>11}  {INTERRUPTED}: the process ended before the turn did{paint.plain}")
    now = f"failed ({played.error.kind})" if played.error else "completed"
    click.echo(f"{paint.dim}{'today':>11}  {'':<9}{now}, {counted(len(played.parts), 'part')}{paint.plain}\n")


def _told(line: AnyLine) -> tuple[str, str]:
    match line:
        case Begun(request=request):
            asked = request if isinstance(request, dict) else {}
            return "asked", f"{asked.get('model')}, {counted(len(asked.get('messages') or ()), 'message')}"
        case Sent(protocol=protocol, url=url, body=body, left_out=left_out):
            kept = ", not kept: it was too large" if left_out else ""
            return "sent", f"{left_out or len(body.encode()):,} bytes to {url} ({protocol}){kept}"
        case Answered(status=status, headers=headers):
            return "answered", f"{status} {headers.get('content-type', '')}"
        case Received(data=data):
            return "received", f"{len(data):,} bytes"
        case Parts(parts=parts):
            return "parts", f"{', '.join(_shown(part) for part in parts)}"
        case Cut(kept=kept):
            return "cut", f"more than {kept:,} bytes came; what followed was not kept"
        case Ended():
            reason = f" ({line.finish_reason})" if line.finish_reason else ""
            error = f": {line.error.get('kind')}: {line.error.get('message', '')}" if line.error else ""
            return "ended", f"{line.outcome}{reason}{error}"
        case _:
            assert_never(line)


def _shown(part: Part) -> str:
    match part:
        case TextPart(text):
            return f"text {_short(text)}"
        case ThinkingPart(text):
            return f"thinking {_short(text)}"
        case ToolCallPart(_, name, given):
            return f"call {name} {_short(to_json(given))}"
        case DataPart(data, mime):
            return f"{mime}, {len(data):,} bytes"
        case ToolResultPart(call_id):
            return f"result of {call_id}"
        case _:
            assert_never(part)


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _show_difference(differences: list[tuple[int, str | None, str | None]], same: bool, count: int) -> None:
    if same:
        click.echo(f"The same {counted(count, 'part')} as then.")
        return
    for place, before, after in differences:
        _show_both(f"part {place}", before, after)
    if not differences:
        click.echo("The same parts as then, and something else is otherwise.")


def _show_requests(played: Played) -> None:
    for number, found in enumerate(played.requests, 1):
        for place, before, after in found[:_MOST]:
            _show_both(f"request {number}, {one_line(place)}", before, after)
        if len(found) > _MOST:
            click.echo(f"request {number} differs in {len(found) - _MOST} places more")


def _show_both(what: str, before: str | None, after: str | None) -> None:
    click.echo(what)
    click.echo(f"  - {one_line(before) if before is not None else '(none)'}")
    click.echo(f"  + {one_line(after) if after is not None else '(none)'}")
