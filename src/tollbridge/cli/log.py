"""`tollbridge log`: list, show and delete kept conversations."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import msgspec

from tollbridge.cli.conversations import (
    NOTHING_KEPT,
    SavedConversation,
    find_kept,
    list_kept,
    read_conversation,
    texts,
)
from tollbridge.cli.options import WholeNumber, json_option
from tollbridge.cli.output import Column, print_json_lines, show_table, to_json
from tollbridge.cli.terminal import bold, dim, format_count, replace_controls, supports_styles
from tollbridge.types.messages import Role


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kept conversation. The fields are those of `log --json`; `updated` is in seconds since the epoch."""

    id: str
    updated: float
    model: str | None
    messages: int
    title: str


@click.group(invoke_without_command=True)
@click.option("--count", "-n", type=WholeNumber(1), default=20, show_default=True, help="How many to list.")
@json_option("Output JSON Lines, one object per conversation.")
@click.pass_context
def log(ctx: click.Context, count: int, as_json: bool) -> None:
    """List, show and delete kept conversations.

    Conversations are kept if `ask` or `chat` has the option --keep, or if the setting `keep_conversations` is
    true. They are files on this computer that only you can read. Without a subcommand, the latest are listed.
    """
    if ctx.invoked_subcommand is not None:
        return
    kept = list_kept()
    rows = [_row(path, updated) for path, updated in list(kept.items())[:count]]
    if as_json:
        print_json_lines(rows)
    elif rows:
        columns = (
            Column("id"),
            Column("last change", drop_order=1),
            Column("model", drop_order=2),
            Column("messages", right=True, drop_order=3),
            Column("first question", min_width=20),
        )
        show_table(columns, [_cells(row) for row in rows])
        if len(kept) > count:
            click.echo(f"\n… and {len(kept) - count:,} more; use --count to see them.")
    else:
        click.echo(NOTHING_KEPT, err=True)


def _row(path: Path, updated: float) -> LogRow:
    try:
        saved = read_conversation(path)
    except click.ClickException:
        return LogRow(id=path.stem, updated=updated, model=None, messages=0, title="(cannot be read)")
    messages = sum(message.role is not Role.SYSTEM for message in saved.messages)
    return LogRow(id=path.stem, updated=updated, model=saved.model, messages=messages, title=saved.title)


def _cells(row: LogRow) -> tuple[str, ...]:
    updated = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.updated))
    return row.id, updated, row.model or "—", f"{row.messages:,}", row.title


@log.command()
@click.argument("conversation", required=False, metavar="[ID]")
@json_option("Output the conversation as one JSON object.")
def show(conversation: str | None, as_json: bool) -> None:
    """Print a conversation: the one whose ID starts with ID, or the latest."""
    path = find_kept(conversation)
    saved = read_conversation(path)
    if as_json:
        messages = [{"role": message.role, "text": "\n".join(texts(message))} for message in saved.messages]
        click.echo(to_json({"id": path.stem, "model": saved.model, "messages": messages}))
    elif supports_styles(sys.stdout):
        _show_styled(path.stem, saved)
    else:
        click.echo(replace_controls(saved.to_markdown()) if sys.stdout.isatty() else saved.to_markdown())


def _show_styled(conversation_id: str, saved: SavedConversation) -> None:
    # Imported here because it loads rich.
    from tollbridge.cli.markdown import render_markdown

    click.echo(dim(f"{conversation_id} · {replace_controls(saved.model)}", sys.stdout))
    for message in saved.messages:
        text = "\n\n".join(texts(message))
        if message.role is Role.ASSISTANT:
            render_markdown(text, sys.stdout)
        else:
            mark = "> " if message.role is Role.USER else "system: "
            click.echo("\n" + bold(f"{mark}{replace_controls(text)}", sys.stdout))


@log.command()
@click.argument("conversations", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Delete all kept conversations.")
def delete(conversations: tuple[str, ...], everything: bool) -> None:
    """Delete conversations. ID is the beginning of an ID in the list."""
    if bool(conversations) == everything:
        raise click.UsageError("Name the conversations to delete, or use --all.")
    # All are found before the first one is deleted, so that a wrong ID deletes nothing.
    chosen = set(list_kept() if everything else map(find_kept, conversations))
    for path in chosen:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise click.ClickException(f"Cannot delete {path}: {error.strerror}.") from error
    click.echo(f"Deleted {format_count(len(chosen), 'conversation')}.", err=True)
