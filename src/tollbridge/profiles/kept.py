"""Profiles on disk: a file of TOML for each base URL, written by `tollbridge doctor`, open to any pen."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from hashlib import blake2s
from pathlib import Path
from typing import Any

import msgspec

from tollbridge.core.errors import RequestError
from tollbridge.core.places import data_folder
from tollbridge.core.quirks import Quirks
from tollbridge.profiles.profile import Profile


class UnreadableProfile(RequestError):
    """A file is there and is no profile. It is named: a person may have written it."""


def profile_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Beside what else was measured and learned."""
    return data_folder(environment) / "profiles"


def profile_file(base_url: str, folder: Path | None = None) -> Path:
    """Named so that a person finds it, and so that no two base URLs share one."""
    url = _normal(base_url)
    legible = re.sub(r"[^a-z0-9.]+", "-", url.partition("://")[2].lower()).strip("-.")[:60]
    mark = blake2s(url.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return (folder or profile_folder()) / f"{legible or 'server'}-{mark}.toml"


def kept_profile(base_url: str, folder: Path | None = None) -> Profile | None:
    path = profile_file(base_url, folder)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableProfile(f"The profile {path} cannot be read: {error.strerror or error}.") from error
    try:
        return _read(msgspec.toml.decode(data, type=dict[str, Any]))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableProfile(
            f"The profile {path} makes no sense: {error}. Mend it, or run `tollbridge doctor` again."
        ) from error


def keep_profile(
    base_url: str, model: str, quirks: Quirks, comments: Iterable[str] = (), folder: Path | None = None
) -> Path:
    """Writes what was found with one model. What was found with others before stays."""
    path = profile_file(base_url, folder)
    found = Profile.measured(model, quirks)
    earlier: Mapping[str, Mapping[str, Any]] = {}
    with contextlib.suppress(UnreadableProfile):
        before = kept_profile(base_url, folder)
        earlier = before.models if before is not None else {}
    text = _text(base_url, msgspec.structs.replace(found, models={**earlier, **found.models}), comments)
    path.parent.mkdir(parents=True, exist_ok=True)
    # In one step: an editor may be reading it.
    file = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)  # noqa: SIM115 - closed below
    try:
        with file:
            file.write(text.encode("utf-8", "replace"))
        os.replace(file.name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        raise
    return path


def _read(found: dict[str, Any]) -> Profile:
    found.pop("base_url", None)
    models = msgspec.convert(found.pop("models", {}), dict[str, dict[str, Any]])
    profile = Profile(msgspec.convert(found, Quirks), models, frozenset(found))
    for model in models:
        profile.of(model)  # checked when it is read, and not when it is used
    return profile


def _normal(base_url: str) -> str:
    return base_url.rstrip("/")


def _text(base_url: str, profile: Profile, comments: Iterable[str]) -> str:
    server = {name: getattr(profile.quirks, name) for name in profile.said}
    lines = [f"# {' '.join(comment.split())}" for comment in comments]
    lines.append(f"base_url = {_value(_normal(base_url))}")
    lines += _lines(server)
    for model, own in profile.models.items():
        lines += ["", f"[models.{_value(model)}]", *_lines(own)]
    return "\n".join(lines) + "\n"


def _lines(fields: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in sorted(fields.items())]


def _value(value: Any) -> str:
    """A value in TOML, whose strings, booleans and lists are JSON's, but for one character."""
    plain = sorted(value) if isinstance(value, frozenset) else value
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
