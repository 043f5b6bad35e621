"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from tollbridge.core.media import sniff
from tollbridge.core.messages import DataPart

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
IMAGE_LIMIT = 20 * 1024 * 1024

Images = tuple[DataPart, ...]
Command = TypeVar("Command", bound=Callable[..., Any])


class Where(msgspec.Struct, frozen=True):
    """Which gateway the person asked for, if any."""

    base_url: str | None = None
    local: bool = False


def where_options(command: Command) -> Command:
    command = click.option(
        "--base-url",
        envvar="TOLLBRIDGE_BASE_URL",
        metavar="URL",
        help="The gateway; its address usually ends in /v1.  [env: TOLLBRIDGE_BASE_URL]",
    )(command)
    return click.option("--local", is_flag=True, help="Use the small model on this machine.")(command)


def request_options(command: Command) -> Command:
    command = click.option(
        "--reasoning",
        "effort",
        type=click.Choice(EFFORTS),
        metavar="EFFORT",
        help=f"How hard to think: {', '.join(EFFORTS)}.",
    )(command)
    command = click.option(
        "--image",
        "images",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=_read_images,
        help="Show the model an image; may be given several times.",
    )(command)
    command = click.option("--system", metavar="TEXT", help="What the model is told before anything else.")(
        command
    )
    return click.option(
        "--model",
        envvar="TOLLBRIDGE_MODEL",
        metavar="NAME",
        help="The model, as `tollbridge models` names it.  [env: TOLLBRIDGE_MODEL]",
    )(command)


def _read_images(
    _ctx: click.Context, _param: click.Parameter, paths: tuple[Path, ...]
) -> tuple[DataPart, ...]:
    return tuple(_read_image(path) for path in paths)


def _read_image(path: Path) -> DataPart:
    try:
        with path.open("rb") as file:
            data = file.read(IMAGE_LIMIT + 1)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > IMAGE_LIMIT:
        raise click.BadParameter(
            f"{path} is larger than {IMAGE_LIMIT // 1024 // 1024} MB, the most that is sent."
        )
    mime = sniff(data)
    if mime is None or not mime.startswith("image/"):
        raise click.BadParameter(f"{path} is not an image (PNG, JPEG, GIF, WebP...).")
    return DataPart(data, mime, path.name)
