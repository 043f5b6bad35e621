"""`tollbridge replay`: replay recordings with the current version.

There are two kinds of recordings. A turn (.jsonl, written with --record) has the request, the bytes of the
response with their times, and the result. A response has only the bytes that a server sent.
"""

from __future__ import annotations

import asyncio
import re
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import brotli  # type: ignore[import-untyped]
import click

from tollbridge.answer import Answer
from tollbridge.cli.options import json_option
from tollbridge.cli.output import describe_answer, describe_error, print_table, table_width, to_json
from tollbridge.cli.terminal import bold, dim, format_count, one_line, replace_controls, wrap_line
from tollbridge.protocols.detect import decoder_for, stream_names
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
from tollbridge.types.errors import RequestError
from tollbridge.types.events import Failed
from tollbridge.types.messages import DataPart, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from tollbridge.types.text import read_json, write_json

if TYPE_CHECKING:
    from tollbridge.recorder.replay import Replay

# The width of tables if the output is not a terminal: lines are not wrapped.
_UNLIMITED_WIDTH = 10_000_000


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--protocol",
    type=click.Choice(["auto", *stream_names()]),
    default="auto",
    show_default=True,
    help="Protocol of a raw response; auto detects it.",
)
@click.option("--diff", is_flag=True, help="Compare the replayed result with the recorded one.")
@json_option("Output JSON Lines, one object per file.")
def replay(files: tuple[Path, ...], protocol: str, diff: bool, as_json: bool) -> int:
    """Replay recordings with the current version.

    Recordings made with --record (.jsonl) are shown as a timeline. Raw responses (.sse, .json, ...) are
    summarized; if a .headers file with the same name exists, it provides the status and the headers.

    Exits with 1 if a file cannot be replayed, or if --diff finds a difference.
    """
    failed = False
    for path in files:
        try:
            failed |= not _replay_file(path, protocol, diff, as_json)
        except BrokenPipeError:  # standard output was closed; this is not an error of the recording
            raise
        except OSError as error:
            reason = error.strerror or type(error).__name__
            click.echo(f"Error: Cannot read {path}: {reason}. Specify the path of a recording.", err=True)
            failed = True
        except RequestError as error:
            click.echo(f"Error: {one_line(error.message)}", err=True)
            failed = True
    return int(failed)


def _replay_file(path: Path, protocol: str, diff: bool, as_json: bool) -> bool:
    """Replay and show one file. Return false if it is no recording, or if `diff` finds a difference."""
    if is_recording(path):
        return _replay_turn(path, diff, as_json)
    if diff:
        raise RequestError(f"--diff needs a recording made with --record; {path} is a raw response.")
    answer = replay_response(path, protocol)
    kinds = {event.error.kind if isinstance(event, Failed) else "content" for event in answer.events}
    if kinds <= {"protocol"} and find_headers(path)[0] is None:
        expected = "a known protocol" if protocol == "auto" else f"the protocol {protocol}"
        raise RequestError(
            f"{path} is neither a recording nor a response of {expected}. `--record` makes recordings."
        )
    description = describe_answer(answer)
    if as_json:
        click.echo(to_json({"file": str(path), **description}))
    else:
        _show_answer(path, description)
    # A response in which nothing was found but a decoding error or the missing end cannot be replayed.
    return not kinds <= {"protocol", "disconnected"}


# --- Raw responses ---

RESPONSE_LIMIT = 512 * 1024 * 1024
_CHUNK_SIZE = 1 << 16
_STATUS_LINE = re.compile(r"HTTP/[\d.]+ (\d{3})\b")


def replay_response(path: Path, protocol: str) -> Answer:
    """Decode a recorded response.

    Raises:
        OSError: The file or its headers file cannot be read.
        RequestError: The file is too large, or it is empty and has no headers file.
    """
    status, headers = find_headers(path)
    with path.open("rb") as file:
        data = file.read(RESPONSE_LIMIT + 1)
    if len(data) > RESPONSE_LIMIT:
        raise RequestError(f"{path} exceeds the {RESPONSE_LIMIT >> 20} MiB limit.")
    if not data and status is None:
        raise RequestError(f"{path} is empty. Specify a file with a recording.")
    body = decompress(data, headers.get("content-encoding", ""))
    decoder = decoder_for(protocol, status, headers)
    answer = Answer()
    for start in range(0, len(body), _CHUNK_SIZE):
        answer.add(decoder.feed(body[start : start + _CHUNK_SIZE]))
    answer.add(decoder.close())
    return answer


def find_headers(path: Path) -> tuple[int | None, dict[str, str]]:
    """Return the status and the headers of a recorded response; `None` and none without a headers file."""
    headers_path = path.parent / f"{path.stem}.headers"
    if headers_path == path or not headers_path.exists():
        return None, {}
    return read_headers(headers_path.read_text(encoding="latin-1"))


def read_headers(text: str) -> tuple[int | None, dict[str, str]]:
    """Return the status and the headers (names in lower case) of the last response in the text.

    Proxies and 1xx responses put their own headers before it.
    """
    status: int | None = None
    headers: dict[str, str] = {}
    for line in re.split(r"\r?\n", text):
        if match := _STATUS_LINE.match(line):
            status, headers = int(match[1]), {}
        elif ":" in line:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
    return status, headers


def decompress(body: bytes, encoding: str) -> bytes:
    """Remove the content encoding of a body.

    Most recorders store the decompressed body with the original headers, so a body that is not compressed is
    returned unchanged. A truncated body is decompressed as far as possible.
    """
    decompressor = _DECOMPRESSORS.get(encoding.lower())
    if decompressor is None:
        return body
    try:
        return decompressor(body)
    except (zlib.error, brotli.error):
        return body


_DECOMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: zlib.decompressobj(wbits=31).decompress(body),
    "deflate": lambda body: zlib.decompressobj().decompress(body),
    "br": lambda body: bytes(brotli.Decompressor().process(body)),
}


def _show_answer(path: Path, answer: Mapping[str, Any]) -> None:
    # Imported here because loading rich takes longer than most commands take to run.
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _answer_rows(answer):
        table.add_row(name, Text(value))
    click.echo(bold(one_line(str(path)), sys.stdout))
    print_table(table, table_width() or _UNLIMITED_WIDTH)
    click.echo()


def _answer_rows(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    ended, reason = answer["ended"], answer["finish_reason"]
    usage = ", ".join(
        f"{name} {count:,}" for name, count in (answer["usage"] or {}).items() if count is not None
    )
    rows = [
        ("reasoning", replace_controls(answer["reasoning"])),
        ("text", replace_controls(answer["text"])),
        *(
            (
                "call" if call["offered"] else "call (run by the provider)",
                one_line(f"{call['name']} {to_json(call['input'])}"),
            )
            for call in answer["tool_calls"]
        ),
        *(("file", one_line(to_json(file))) for file in answer["files"]),
        *(("source", one_line(to_json(source))) for source in answer["sources"]),
        *(("data", one_line(to_json(data))) for data in answer["data"]),
        ("usage", usage),
        *(("error", f"{error['kind']}: {one_line(error['message'])}") for error in answer["errors"]),
        ("ended", ended if reason is None else f"{ended} ({reason})"),
    ]
    return [(name, value) for name, value in rows if value]


# --- Turns ---

INTERRUPTED = "interrupted"  # the outcome of a turn whose process was killed, as in `tollbridge usage`
_MAX_DIFFERENCES = 20  # differences shown for one request
_MAX_PART_LENGTH = 100  # characters of a part shown in the timeline
_LABEL_WIDTH = 11


def _replay_turn(path: Path, diff: bool, as_json: bool) -> bool:
    """Replay and show a turn. Return false if `diff` is set and the result differs."""
    # Imported here because it loads the engine, which raw responses do not need.
    from tollbridge.recorder.replay import diff_parts, replay_recording

    recording = read_recording(path)
    result = asyncio.run(replay_recording(recording))
    parts = recording.parts
    # If the process was killed, the recording can contain bytes whose parts were not written any more.
    differences = diff_parts(parts, result.parts if recording.end else result.parts[: len(parts)])
    same = not differences and not any(result.requests) and _has_same_ending(recording, result)
    if as_json:
        click.echo(to_json(_as_json(path, recording, result, same)))
    else:
        _show_timeline(path, recording, result)
        if diff:
            _show_request_differences(result)
            _show_part_differences(differences, same, len(result.parts))
    return same or not diff


def _has_same_ending(recording: Recording, result: Replay) -> bool:
    """Return whether the replay ended like the recorded turn.

    A cancelled turn cannot end the same way again. After a network error, any error of the replay counts as
    the same ending.
    """
    ended = recording.end
    if ended is None or ended.outcome == "cancelled":
        return True
    kind = (ended.error or {}).get("kind")
    if kind in ("network", "timeout", "disconnected"):
        return result.answer.error is not None
    return kind == (result.answer.error.kind if result.answer.error else None)


def _as_json(path: Path, recording: Recording, result: Replay, same: bool) -> dict[str, Any]:
    ended, error = recording.end, result.answer.error
    return {
        "file": str(path),
        "same": same,
        "outcome": INTERRUPTED if ended is None else ended.outcome,
        "error": None if error is None else describe_error(error),
        "finish_reason": result.answer.finish_reason,
        "usage": result.answer.usage,
        "changes": result.answer.changes,
        "requests": [
            [{"place": place, "then": then, "now": now} for place, then, now in differences]
            for differences in result.requests
        ],
        "parts": [read_json(write_json(part)) for part in result.parts],
    }


def _show_timeline(path: Path, recording: Recording, result: Replay) -> None:
    start = recording.start
    click.echo(bold(one_line(str(path)), sys.stdout))
    redacted = ", content redacted" if start.redacted else ""
    click.echo(dim(f"recorded by Tollbridge {one_line(start.tollbridge)}{redacted}", sys.stdout))
    for line in recording.lines:
        label, text = _describe(line)
        prefix = f"{line.at:>9.3f} s  {label:<{_LABEL_WIDTH}}"
        click.echo(dim(prefix, sys.stdout) + wrap_line(one_line(text), sys.stdout, len(prefix)))
    if recording.end is None:
        text = f"{INTERRUPTED}: the process ended before the turn did"
        click.echo(dim(f"{'':>11}  {text}", sys.stdout))
    outcome = f"failed ({result.answer.error.kind})" if result.answer.error else "completed"
    text = f"{'replayed:':<{_LABEL_WIDTH}}{outcome}, {format_count(len(result.parts), 'part')}"
    click.echo(dim(f"{'':>11}  {text}", sys.stdout) + "\n")


def _describe(line: AnyLine) -> tuple[str, str]:
    """Return the label and the text of a line in the timeline."""
    match line:
        case RecordingStart(request=value):
            request = value if isinstance(value, dict) else {}
            messages = format_count(len(request.get("messages") or ()), "message")
            return "request", f"{request.get('model')}, {messages}"
        case RequestLine(protocol=protocol, url=url, body=body, omitted_bytes=omitted_bytes):
            note = "; the body was too large to record" if omitted_bytes else ""
            return "sent", f"{omitted_bytes or len(body.encode()):,} bytes to {url} ({protocol}){note}"
        case ResponseLine(status=status, headers=headers):
            return "response", f"{status} {headers.get('content-type', '')}"
        case DataLine(data=data):
            return "received", f"{len(data):,} bytes"
        case PartsLine(parts=parts):
            return "parts", ", ".join(_describe_part(part) for part in parts)
        case TruncationLine(recorded_bytes=limit):
            return "truncated", f"only the first {limit:,} bytes were recorded"
        case EndLine():
            reason = f" ({line.finish_reason})" if line.finish_reason else ""
            error = f": {line.error.get('kind')}: {line.error.get('message', '')}" if line.error else ""
            return "ended", f"{line.outcome}{reason}{error}"
        case _:
            assert_never(line)


def _describe_part(part: Part) -> str:
    match part:
        case TextPart(text):
            return f"text {_shorten(text)}"
        case ThinkingPart(text):
            return f"reasoning {_shorten(text)}"
        case ToolCallPart(_, name, arguments):
            return f"call {name} {_shorten(to_json(arguments))}"
        case DataPart(data, mime):
            return f"{mime}, {len(data):,} bytes"
        case ToolResultPart(call_id):
            return f"result of {call_id}"
        case _:
            assert_never(part)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _MAX_PART_LENGTH else f"{text[:_MAX_PART_LENGTH]}…")


def _show_part_differences(
    differences: list[tuple[int, str | None, str | None]], same: bool, count: int
) -> None:
    if same:
        click.echo(f"No differences ({format_count(count, 'part')}).")
        return
    for index, recorded, replayed in differences:
        _show_difference(f"part {index}", recorded, replayed)
    if not differences:
        click.echo("The parts are the same, but the request or the ending differs.")


def _show_request_differences(result: Replay) -> None:
    for number, differences in enumerate(result.requests, 1):
        for place, recorded, replayed in differences[:_MAX_DIFFERENCES]:
            _show_difference(f"request {number}, {one_line(place)}", recorded, replayed)
        if len(differences) > _MAX_DIFFERENCES:
            rest = format_count(len(differences) - _MAX_DIFFERENCES, "more difference")
            click.echo(f"… and {rest} in request {number}")


def _show_difference(heading: str, recorded: str | None, replayed: str | None) -> None:
    click.echo(heading)
    click.echo(f"  - {one_line(recorded) if recorded is not None else '(none)'}")
    click.echo(f"  + {one_line(replayed) if replayed is not None else '(none)'}")
