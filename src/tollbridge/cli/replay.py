"""`tollbridge replay`: what was recorded, through the code of today."""

from __future__ import annotations

import asyncio
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, assert_never

import brotli  # type: ignore[import-untyped]
import click
import msgspec

from tollbridge.cli.summary import Summary, summarise, to_json
from tollbridge.cli.tables import draw, room
from tollbridge.cli.terminal import Paint, counted, folded, harmless, one_line
from tollbridge.protocols.detect import DECODERS, decoder_for
from tollbridge.recorder.recording import (
    AnyLine,
    DataLine,
    EndLine,
    PartsLine,
    Recording,
    RecordingStart,
    RequestLine,
    ResponseLine,
    TruncationLine,
    is_recording,
    read_recording,
)
from tollbridge.recorder.replay import Replay, diff_parts, replay_recording
from tollbridge.types.errors import RequestError
from tollbridge.types.events import Event
from tollbridge.types.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from tollbridge.types.text import read_json, write_json

# SECTION Recorded response bytes on disk, with the status and headers kept beside them.

LIMIT = 512 * 1024 * 1024
_CHUNK = 1 << 16
_STATUS = re.compile(r"HTTP/[\d.]+ (\d{3})\b")


class ResponseRecording(msgspec.Struct, frozen=True):
    """`status` is `None` and `headers` empty where no `.headers` file lies beside the body."""

    path: Path
    status: int | None = None
    headers: dict[str, str] = {}

    def chunks(self) -> Iterator[bytes]:
        """The body in pieces, unpacked where it was kept as it travelled. Raises OSError and RequestError."""
        with self.path.open("rb") as file:
            kept = file.read(LIMIT + 1)
        if len(kept) > LIMIT:
            raise RequestError(f"{self.path} is longer than {LIMIT >> 20} MiB, the most that is replayed.")
        body = unpacked(kept, self.headers.get("content-encoding", ""))
        for start in range(0, len(body), _CHUNK):
            yield body[start : start + _CHUNK]


def open_recording(path: Path) -> ResponseRecording:
    """Raises OSError where the headers are there and cannot be read."""
    beside = path.parent / f"{path.stem}.headers"
    if beside == path or not beside.exists():
        return ResponseRecording(path)
    status, headers = read_headers(beside.read_text(encoding="latin-1"))
    return ResponseRecording(path, status, headers)


def read_headers(text: str) -> tuple[int | None, dict[str, str]]:
    """Status and headers (names in lower case) of the last reply: proxies and 1xx write theirs before it."""
    status: int | None = None
    headers: dict[str, str] = {}
    for line in re.split(r"\r?\n", text):
        if found := _STATUS.match(line):
            status, headers = int(found[1]), {}
        elif ":" in line:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
    return status, headers


def unpacked(body: bytes, encoding: str) -> bytes:
    """The body without its content encoding. Most recorders take that off and keep the header, so a body
    that is not packed is taken as it is; one that was cut gives what can be had."""
    unpack = _UNPACKERS.get(encoding.lower())
    if unpack is None:
        return body
    try:
        return unpack(body)
    except (zlib.error, brotli.error):
        return body


_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: zlib.decompressobj(wbits=31).decompress(body),
    "deflate": lambda body: zlib.decompressobj().decompress(body),
    "br": lambda body: bytes(brotli.Decompressor().process(body)),
}


# SECTION The recording of a turn, shown: what happened when, and whether the code of today makes the same of it.

INTERRUPTED = "interrupted"  # as the ledger calls it
_MOST = 20  # differences of one request that are shown
_LONGEST = 100  # of a part, on the line that shows it


def replay_turn(path: Path, diff: bool, as_json: bool) -> bool:
    """Play it and show it. Whether nothing differs, where that was asked."""
    recording = read_recording(path)
    played = asyncio.run(replay_recording(recording))
    parts = recording.parts
    # Of a turn that was cut, the last bytes may be there without the parts they made.
    differences = diff_parts(parts, played.parts if recording.end else played.parts[: len(parts)])
    same = not differences and not any(played.requests) and _same_ending(recording, played)
    if as_json:
        click.echo(to_json(_as_json(path, recording, played, same)))
    else:
        _show_timeline(path, recording, played)
        if diff:
            _show_requests(played)
            _show_difference(differences, same, len(played.parts))
    return same or not diff


def _same_ending(recording: Recording, played: Replay) -> bool:
    """How it ended then and now. One that was stopped, or that the network ended, cannot end so again."""
    ended = recording.end
    if ended is None or ended.outcome == "cancelled":
        return True
    kind = (ended.error or {}).get("kind")
    if kind in ("network", "timeout", "disconnected"):
        return played.error is not None
    return kind == (played.error.kind if played.error else None)


def _as_json(path: Path, recording: Recording, played: Replay, same: bool) -> dict[str, Any]:
    ended, error = recording.end, played.error
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


def _show_timeline(path: Path, recording: Recording, played: Replay) -> None:
    begun = recording.start
    paint = Paint(sys.stdout)
    click.echo(f"{paint.bold}{one_line(str(path))}{paint.plain}")
    redacted = ", content blotted out" if begun.redacted else ""
    click.echo(f"{paint.dim}recorded by Tollbridge {one_line(begun.tollbridge)}{redacted}{paint.plain}")
    for line in recording.lines:
        what, told = _told(line)
        when = f"{line.at:>9.3f} s  {what:<9}"
        click.echo(f"{paint.dim}{when}{paint.plain}{folded(one_line(told), sys.stdout, len(when))}")
    if recording.end is None:
        click.echo(f"{paint.dim}{'':>11}  {INTERRUPTED}: the process ended before the turn did{paint.plain}")
    now = f"failed ({played.error.kind})" if played.error else "completed"
    click.echo(f"{paint.dim}{'today':>11}  {'':<9}{now}, {counted(len(played.parts), 'part')}{paint.plain}\n")


def _told(line: AnyLine) -> tuple[str, str]:
    match line:
        case RecordingStart(request=request):
            asked = request if isinstance(request, dict) else {}
            return "asked", f"{asked.get('model')}, {counted(len(asked.get('messages') or ()), 'message')}"
        case RequestLine(protocol=protocol, url=url, body=body, omitted_bytes=left_out):
            kept = ", not kept: it was too large" if left_out else ""
            return "sent", f"{left_out or len(body.encode()):,} bytes to {url} ({protocol}){kept}"
        case ResponseLine(status=status, headers=headers):
            return "answered", f"{status} {headers.get('content-type', '')}"
        case DataLine(data=data):
            return "received", f"{len(data):,} bytes"
        case PartsLine(parts=parts):
            return "parts", f"{', '.join(_shown(part) for part in parts)}"
        case TruncationLine(recorded_bytes=kept):
            return "cut", f"more than {kept:,} bytes came; what followed was not kept"
        case EndLine():
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


def _show_requests(played: Replay) -> None:
    for number, found in enumerate(played.requests, 1):
        for place, before, after in found[:_MOST]:
            _show_both(f"request {number}, {one_line(place)}", before, after)
        if len(found) > _MOST:
            click.echo(f"request {number} differs in {len(found) - _MOST} places more")


def _show_both(what: str, before: str | None, after: str | None) -> None:
    click.echo(what)
    click.echo(f"  - {one_line(before) if before is not None else '(none)'}")
    click.echo(f"  + {one_line(after) if after is not None else '(none)'}")


# SECTION `tollbridge replay`: what was recorded, through the code of today.

# For programs no line is folded.
_UNBOUNDED = 10_000_000


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--protocol",
    type=click.Choice(["auto", *DECODERS]),
    default="auto",
    show_default=True,
    help="What recorded bytes speak; auto looks at them.",
)
@click.option(
    "--diff", is_flag=True, help="Compare what a turn's recording gives today with what it gave then."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a file, one a line.")
def replay(files: tuple[Path, ...], protocol: str, diff: bool, as_json: bool) -> int:
    """Run recordings through the code of today.

    A recording of a turn (.jsonl, made with --record) is shown as a timeline. Recorded responses (.sse,
    .json, ...) are summed up; a .headers file of the same name beside one gives its status and content type.
    """
    failed = False
    for path in files:
        try:
            failed |= not _replay(path, protocol, diff, as_json)
        except BrokenPipeError:  # the reader of what we print has seen enough
            raise
        except OSError as error:
            reason = error.strerror or type(error).__name__
            click.echo(f"Error: {path} cannot be read: {reason}. Give the path of a recording.", err=True)
            failed = True
        except RequestError as error:
            click.echo(f"Error: {one_line(error.message)}", err=True)
            failed = True
    return int(failed)


def _replay(path: Path, protocol: str, diff: bool, as_json: bool) -> bool:
    """Whether all is as it was."""
    if is_recording(path):
        # Not at the top: it brings the whole bridge, and the bytes of an answer are replayed without.
        pass  # MERGED

        return replay_turn(path, diff, as_json)
    if diff:
        raise RequestError(
            f"{path} has nothing to compare with: it is not the recording of a turn (--record)."
        )
    summary = summarise(replayed(path, protocol))
    if as_json:
        click.echo(to_json({"file": str(path), **msgspec.to_builtins(summary)}))
    else:
        _show(path, summary)
    return True


def replayed(path: Path, protocol: str) -> list[Event]:
    """The events of one recording. Raises OSError where it cannot be read, RequestError where too long."""
    recording = open_recording(path)
    decoder = decoder_for(protocol, recording.status, recording.headers)
    events: list[Event] = []
    for chunk in recording.chunks():
        events += decoder.feed(chunk)
    return events + decoder.close()


def _show(path: Path, summary: Summary) -> None:
    # Not at the top: it takes longer to load than most commands to run.
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(summary):
        table.add_row(name, Text(value))
    paint = Paint(sys.stdout)
    click.echo(f"{paint.bold}{one_line(str(path))}{paint.plain}")
    draw(table, room() or _UNBOUNDED)
    click.echo()


def _rows(summary: Summary) -> list[tuple[str, str]]:
    ended = summary.ended if summary.finish_reason is None else f"{summary.ended} ({summary.finish_reason})"
    usage = {} if summary.usage is None else summary.usage
    known = ", ".join(f"{name} {count:,}" for name, count in usage.items() if count is not None)
    rows = [
        ("thinking", harmless(summary.reasoning)),
        ("text", harmless(summary.text)),
        *(("call" if call["offered"] else "call, not offered", _call(call)) for call in summary.tool_calls),
        *(("file", one_line(to_json(file))) for file in summary.files),
        *(("source", one_line(to_json(source))) for source in summary.sources),
        *(("data", one_line(to_json(data))) for data in summary.data),
        ("usage", known),
        *(("error", f"{error['kind']}: {one_line(error['message'])}") for error in summary.errors),
        ("ended", ended),
    ]
    return [(name, value) for name, value in rows if value]


def _call(call: dict[str, object]) -> str:
    return one_line(f"{call['name']} {to_json(call['input'])}")
