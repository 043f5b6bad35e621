"""`tollbridge log`: list, show and delete kept conversations."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from tollbridge.cli.conversations import (
    NOTHING_KEPT,
    ConversationStore,
    KeptConversation,
    SavedConversation,
    read_conversation,
    texts,
)
from tollbridge.cli.options import WholeNumber
from tollbridge.cli.output import Column, Row, show_table, to_json
from tollbridge.cli.terminal import Styles, format_count, replace_controls, supports_styles
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
@click.option("--json", "as_json", is_flag=True, help="Output JSON Lines, one object per conversation.")
@click.pass_context
def log(ctx: click.Context, count: int, as_json: bool) -> None:
    """List, show and delete kept conversations.

    Conversations are kept if `ask` or `chat` has the option --keep, or if the setting `keep_conversations` is
    true. They are files on this computer that only you can read. Without a subcommand, the latest are listed.
    """
    if ctx.invoked_subcommand is not None:
        return
    store = ConversationStore()
    kept = store.all()
    rows = [_row(each) for each in kept[:count]]
    if as_json:
        for row in rows:
            click.echo(to_json(row))
    elif rows:
        columns = (
            Column("id"),
            Column("last change", drop_order=1),
            Column("model", drop_order=2),
            Column("messages", right=True, drop_order=3),
            Column("first question", min_width=20),
        )
        times = [time.strftime("%Y-%m-%d %H:%M", time.localtime(row.updated)) for row in rows]
        cells = [
            (row.id, changed, row.model or "—", f"{row.messages:,}", row.title)
            for row, changed in zip(rows, times, strict=True)
        ]
        show_table(columns, [Row(each) for each in cells])
        if len(kept) > count:
            click.echo(f"\n… and {len(kept) - count:,} more; use --count to see them.")
    else:
        click.echo(NOTHING_KEPT, err=True)


def _row(kept: KeptConversation) -> LogRow:
    try:
        saved = read_conversation(kept.path)
    except click.ClickException:
        return LogRow(id=kept.id, updated=kept.updated, model=None, messages=0, title="(cannot be read)")
    return LogRow(
        id=kept.id,
        updated=kept.updated,
        model=saved.model,
        messages=sum(message.role is not Role.SYSTEM for message in saved.messages),
        title=saved.title,
    )


@log.command()
@click.argument("conversation", required=False, metavar="[ID]")
@click.option("--json", "as_json", is_flag=True, help="Output the conversation as one JSON object.")
def show(conversation: str | None, as_json: bool) -> None:
    """Print a conversation: the one whose ID starts with ID, or the latest."""
    kept = ConversationStore().find(conversation)
    saved = read_conversation(kept.path)
    if as_json:
        messages = [{"role": message.role, "text": "\n".join(texts(message))} for message in saved.messages]
        click.echo(to_json({"id": kept.id, "model": saved.model, "messages": messages}))
    elif supports_styles(sys.stdout):
        _show_styled(kept.id, saved)
    else:
        click.echo(replace_controls(saved.to_markdown()) if sys.stdout.isatty() else saved.to_markdown())


def _show_styled(conversation_id: str, saved: SavedConversation) -> None:
    # Imported here because it loads rich.
    from tollbridge.cli.markdown import render_markdown

    paint = Styles(sys.stdout)
    click.echo(f"{paint.dim}{conversation_id} · {replace_controls(saved.model)}{paint.plain}")
    for message in saved.messages:
        text = "\n\n".join(texts(message))
        if message.role is Role.ASSISTANT:
            render_markdown(text, sys.stdout)
        else:
            mark = "> " if message.role is Role.USER else "system: "
            click.echo(f"\n{paint.bold}{mark}{replace_controls(text)}{paint.plain}")


@log.command()
@click.argument("conversations", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Delete all kept conversations.")
def delete(conversations: tuple[str, ...], everything: bool) -> None:
    """Delete conversations. ID is the beginning of an ID in the list."""
    if bool(conversations) == everything:
        raise click.UsageError("Name the conversations to delete, or use --all.")
    store = ConversationStore()
    # All are found before the first one is deleted, so that a wrong ID deletes nothing.
    chosen = store.all() if everything else [store.find(prefix) for prefix in conversations]
    for kept in {each.id: each for each in chosen}.values():
        try:
            kept.path.unlink(missing_ok=True)
        except OSError as error:
            raise click.ClickException(f"Cannot delete {kept.path}: {error.strerror}.") from error
    click.echo(f"Deleted {format_count(len({each.id for each in chosen}), 'conversation')}.", err=True)
