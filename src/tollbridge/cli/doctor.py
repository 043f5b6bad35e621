"""`tollbridge doctor`: examines a server, says what it found, and writes the profile to talk to it by."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import sys
from pathlib import Path

import click
import msgspec

from tollbridge.cli.checklist import Checklist
from tollbridge.cli.connection import connect
from tollbridge.cli.options import Where, where_options
from tollbridge.cli.summary import to_json
from tollbridge.cli.terminal import counted, folded, one_line
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.core.places import database_file
from tollbridge.doctor import ABOUT, Examination
from tollbridge.profiles import keep_profile, profile_file
from tollbridge.usage import open_tracker


@click.command()
@where_options
@click.option(
    "--model", envvar="TOLLBRIDGE_MODEL", metavar="NAME", help="The model to examine the server with."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a checklist.")
def doctor(where: Where, model: str | None, as_json: bool) -> int:
    """Examine a server, say what it found, and write the profile to talk to it by.

    Ends with 0 where a chat is possible and with 1 where it is not.
    """
    return asyncio.run(_doctor(where, model, as_json))


async def _doctor(where: Where, model: str | None, as_json: bool) -> int:
    async with connect(where) as connection:
        client = connection.client
        if not isinstance(client, OpenResponsesClient):
            raise click.UsageError("doctor examines servers that speak OpenResponses. Leave out --backend.")
        told = f"Examining {client.base_url} with about {ABOUT} small requests, which may cost a little."
        click.echo(folded(told, sys.stderr), err=True)
        with (
            contextlib.closing(open_tracker(database_file())) as tracker,
            Checklist(quiet=as_json) as checklist,
        ):
            examination = Examination(
                client,
                model or connection.model or connection.settings.model,
                tracker=tracker,
                payer=connection.payer,
            )
            async for step in examination.run():
                checklist.show(step)
        # A server that ends with this command needs no profile: the next is at another address.
        kept = examination.can_chat and connection.lasting
        path = _keep(examination, client.base_url) if kept else None
        if as_json:
            click.echo(to_json(_as_json(examination, client.base_url, path)))
        else:
            click.echo(folded(_conclusion(examination, path), sys.stdout))
    return 0 if examination.can_chat else 1


def _keep(examination: Examination, base_url: str) -> Path:
    server = examination.server
    comments = [
        f"Written by `tollbridge doctor` on {datetime.date.today().isoformat()}, with {examination.model}.",
        "Change it as you like; the next examination writes it anew.",
        *([f"Recognised: {server.name}."] if server else []),
        *(
            f"{step.title}: {one_line(step.finding.sentence)}"
            for step in examination.steps
            if step.finding is not None and step.finding.verdict == "amiss"
        ),
    ]
    try:
        return keep_profile(base_url, examination.model or "", examination.quirks, comments)
    except OSError as error:
        where = error.filename or profile_file(base_url)  # a disk that is full names no file
        raise click.ClickException(
            f"The profile cannot be written: {error.strerror or error} ({where}). "
            "Point TOLLBRIDGE_DATA_DIR at a folder that can be written to."
        ) from error


def _conclusion(examination: Examination, path: Path | None) -> str:
    asked = counted(examination.requests, "request")
    if not examination.can_chat:
        return f"A chat is not possible ({asked}). No profile was written."
    server = f" with {examination.server.name}" if examination.server else ""
    profile = f"Its profile: {path}" if path else "No profile was written: the server ends with this command."
    return f"A chat is possible{server} ({asked}). {profile}"


def _as_json(examination: Examination, base_url: str, path: Path | None) -> dict[str, object]:
    server = examination.server
    return {
        "base_url": base_url,
        "model": examination.model,
        "server": server.name if server else None,
        "can_chat": examination.can_chat,
        "requests": examination.requests,
        "steps": [
            {
                "name": step.name,
                "verdict": step.finding.verdict,
                "sentence": step.finding.sentence,
                "remedy": step.finding.remedy or None,
                "seconds": round(step.seconds, 3),
            }
            for step in examination.steps
            if step.finding is not None
        ],
        "quirks": msgspec.to_builtins(msgspec.structs.asdict(examination.quirks)),
        "path": None if path is None else str(path),
    }
