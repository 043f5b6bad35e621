"""Which gateway a command talks to: the one asked for, the one there is a key for, or one on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import Literal, assert_never

import click
import msgspec

from tollbridge.cli.options import Where
from tollbridge.cli.progress import FetchBar
from tollbridge.cli.terminal import one_line
from tollbridge.client import VERCEL, GatewayClient, OpenResponsesClient
from tollbridge.client_aisdk import UiStreamClient, open_client
from tollbridge.core.profile import Profile
from tollbridge.local import LocalModel, is_installed
from tollbridge.profiles import UnreadableProfile, find_profile, known_profile

KEY_NAMES = ("TOLLBRIDGE_API_KEY", "AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")

Kind = Literal["remote", "local", "embedded", "ui-stream"]


class Choice(msgspec.Struct, frozen=True):
    """`reason` is told to the person where the choice was not theirs."""

    kind: Kind
    base_url: str = ""
    reason: str = ""


class Connection(msgspec.Struct, frozen=True):
    """`model` is the one to use where none was asked for; `None` leaves it to the gateway's list."""

    client: GatewayClient
    place: str
    model: str | None = None


def choose(where: Where, has_key: bool, can_serve: bool) -> Choice:
    if where.ui_stream:
        return Choice("ui-stream", where.ui_stream)
    if where.local:
        return Choice("local")
    if where.base_url:
        return Choice("remote", where.base_url)
    if has_key:
        return Choice("remote", VERCEL)
    if can_serve and where.backend == "openresponses":
        return Choice("local", reason="No key and no --base-url: using a small model on this machine.")
    return Choice("embedded", reason="No key and no --base-url: using the embedded demo, no real model.")


def find_key(environment: Mapping[str, str]) -> str | None:
    """The first key that is set. It is never shown, so a bad one is named by its variable."""
    for name in KEY_NAMES:
        key = environment.get(name, "").strip()
        if key:
            if not key.isascii() or not key.isprintable():
                raise click.UsageError(
                    f"{name} holds characters that no key has. Copy the key into it again."
                )
            return key
    return None


@contextlib.asynccontextmanager
async def connect(where: Where) -> AsyncIterator[Connection]:
    key = find_key(os.environ)
    choice = choose(where, key is not None, is_installed())
    if choice.reason:
        click.echo(choice.reason, err=True)
    match choice.kind:
        case "remote":
            async with open_client(
                where.backend,
                choice.base_url,
                key,
                allow_http=where.allow_http,
                profile=_profile(choice.base_url),
            ) as client:
                yield Connection(client, choice.base_url)
        case "ui-stream":
            # The key of a gateway is nobody else's business: only one meant for Tollbridge itself is sent.
            key = find_key({KEY_NAMES[0]: os.environ.get(KEY_NAMES[0], "")})
            async with UiStreamClient(choice.base_url, key, allow_http=where.allow_http) as chat:
                yield Connection(chat, choice.base_url, "the endpoint's own model")
        case "local":
            if where.backend != "openresponses":
                raise click.UsageError("The model on this machine speaks OpenResponses. Leave out --backend.")
            with FetchBar() as progress:
                async with (
                    LocalModel(progress=progress) as local,
                    OpenResponsesClient(local.url, profile=known_profile("llama.cpp")) as client,
                ):
                    progress.close()
                    yield Connection(client, "this machine (llama.cpp)", local.model_id)
        case "embedded":
            from tollbridge.gateway import MODELS, Gateway

            async with Gateway() as gateway, open_client(where.backend, gateway.url) as client:
                yield Connection(client, "the embedded demo gateway", MODELS[0]["id"])
        case _:
            assert_never(choice.kind)


def _profile(base_url: str) -> Profile | None:
    """How the server wants to be talked to. A file that makes no sense is told, and stops nobody."""
    try:
        return find_profile(base_url)
    except UnreadableProfile as error:
        click.echo(one_line(error.message), err=True)
        return None


async def pick_model(connection: Connection, asked: str | None) -> str:
    """The model to use: the one asked for, the only one there is, or a question back to the person."""
    chosen = asked or connection.model
    if chosen:
        return chosen
    listed = await connection.client.models()
    names = [model.id for model in listed if model.type in (None, "language")]
    if len(names) == 1:
        return names[0]
    if not names:
        raise click.UsageError("The gateway lists no models. Say which one to use with --model.")
    raise click.UsageError(
        f"The gateway has {len(names)} models. Say which one with --model, for example {one_line(names[0])}; "
        "`tollbridge models` lists them."
    )
