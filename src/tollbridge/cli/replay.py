"""`tollbridge replay`: what was recorded, through the code of today."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from tollbridge.cli.recordings import open_recording
from tollbridge.cli.summary import Summary, summarise, to_json
from tollbridge.cli.tables import draw, room
from tollbridge.cli.terminal import Paint, harmless, one_line
from tollbridge.core.errors import RequestError
from tollbridge.core.events import Event
from tollbridge.gateways.dialects import DIALECTS, decoder_for
from tollbridge.recorder.reading import is_recording

# For programs no line is folded.
_UNBOUNDED = 10_000_000


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--protocol",
    type=click.Choice(["auto", *DIALECTS]),
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
        from tollbridge.cli.timeline import replay_turn

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
