"""Saved profiles: the quirks of servers that `tollbridge doctor` has measured, one TOML file per base URL.

Users may edit the files. A saved profile overrides the shipped one of the server (`known_servers.py`), and
lessons (`lessons.py`) override both.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2s
from pathlib import Path
from typing import Any

import msgspec

from tollbridge.compat.known_servers import recognize_server
from tollbridge.transport.files import data_folder, make_folder, replace_file
from tollbridge.types.errors import RequestError
from tollbridge.types.quirks import Quirks


def find_quirks(
    base_url: str, model: str, folder: Path | None = None, *, owners: Collection[str] = ()
) -> Quirks | None:
    """Return the quirks of a model: those of the saved profile, then those of the shipped one.

    The owners are the `owned_by` values in the server's model list, which identify some servers.

    Raises:
        UnreadableProfile: If the saved profile exists and is not valid.
    """
    server = recognize_server(base_url, owners=owners)
    shipped = server.quirks if server else None
    profile = load_profile(base_url, folder)
    return shipped if profile is None else profile.quirks_for(model, shipped)


# Quirks of the server. All other quirks belong to a model, and may differ for the server's other models.
SERVER_QUIRKS = frozenset({"calls", "system", "text_as", "tools_as", "input_tokens", "cache_fields"})
# Quirks that `tollbridge doctor` does not measure. Its profiles leave them as they are.
_UNMEASURED_QUIRKS = frozenset({"cache_diagnostics"})
# Request fields that a server rejects for every model.
SERVER_OMISSIONS = frozenset({"store"})


class Profile(msgspec.Struct, frozen=True):
    """The quirks of one server and its models."""

    quirks: Quirks = Quirks()
    models: Mapping[str, Mapping[str, Any]] = {}  # the quirks of each model, by field name
    # The fields of `quirks` that the profile sets; the others are unknown.
    server_fields: frozenset[str] = frozenset(Quirks.__struct_fields__)

    @classmethod
    def from_findings(cls, model: str, quirks: Quirks) -> Profile:
        """Split the quirks measured with one model into those of the server and those of the model."""
        fields = msgspec.structs.asdict(quirks)
        fields = {name: value for name, value in fields.items() if name not in _UNMEASURED_QUIRKS}
        server = {name: fields.pop(name) for name in SERVER_QUIRKS}
        server["without"] = quirks.without & SERVER_OMISSIONS
        fields["without"] = quirks.without - SERVER_OMISSIONS
        return cls(Quirks(**server), {model: fields}, frozenset(server))

    def quirks_for(self, model: str, shipped: Quirks | None = None) -> Quirks:
        """Return the quirks of one model. Fields that the profile does not set have their `shipped` value.

        `without` is combined: a field is omitted if the server or the model requires it.
        """
        base, model_fields = shipped or Quirks(), self.models.get(model, {})
        server = {name: getattr(self.quirks, name) for name in self.server_fields}
        omitted = self.quirks.without.union(model_fields.get("without", base.without))
        return apply_findings(base, {**server, **model_fields, "without": omitted})


def apply_findings(quirks: Quirks, fields: Mapping[str, Any]) -> Quirks:
    """Return the quirks with these fields changed.

    Raises:
        msgspec.ValidationError: If a field is unknown or has an invalid value.
    """
    return msgspec.convert({**msgspec.structs.asdict(quirks), **fields}, Quirks)


class UnreadableProfile(RequestError):
    """Raised when a saved profile is not valid. The message contains its path, because users may edit it."""


def profile_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the saved profiles."""
    return data_folder(environment) / "profiles"


def profile_file(base_url: str, folder: Path | None = None) -> Path:
    """Return the path of a base URL's profile: a readable name, and a hash that makes it unique."""
    url = base_url.rstrip("/")
    name = re.sub(r"[^a-z0-9.]+", "-", url.partition("://")[2].lower()).strip("-.")[:60]
    url_hash = blake2s(url.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return (folder or profile_folder()) / f"{name or 'server'}-{url_hash}.toml"


def load_profile(base_url: str, folder: Path | None = None) -> Profile | None:
    """Read the saved profile of a base URL; return `None` if there is none.

    Raises:
        UnreadableProfile: If the file cannot be read or is not valid.
    """
    path = profile_file(base_url, folder)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableProfile(f"The profile {path} cannot be read: {error.strerror or error}.") from error
    try:
        return _parse_profile(msgspec.toml.decode(data, type=dict[str, Any]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableProfile(
            f"Invalid profile {path}: {error}. Fix it, or run `tollbridge doctor` again."
        ) from error


def list_profiles() -> dict[str, Profile]:
    """Return the saved profiles by base URL. Files that are not valid are skipped."""
    profiles: dict[str, Profile] = {}
    for path in sorted(profile_folder().glob("*.toml")):
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.MsgspecError):
            table = msgspec.toml.decode(path.read_bytes(), type=dict[str, Any])
            if isinstance(base_url := table.get("base_url"), str):
                profiles[base_url] = _parse_profile(table)
    return profiles


def save_profile(
    base_url: str, model: str, quirks: Quirks, comments: Iterable[str] = (), folder: Path | None = None
) -> Path:
    """Save the quirks measured with one model, and keep those of the server's other models.

    `comments` are lines for the head of the file. The path of the file is returned.

    Raises:
        OSError: If the file cannot be written.
    """
    import tomlkit  # takes long to import, and only `tollbridge doctor` needs it

    path = profile_file(base_url, folder)
    profile = Profile.from_findings(model, quirks)
    with contextlib.suppress(UnreadableProfile):
        earlier = load_profile(base_url, folder) or Profile()
        profile = msgspec.structs.replace(profile, models={**earlier.models, **profile.models})
    server = {name: getattr(profile.quirks, name) for name in profile.server_fields}
    table = {"base_url": base_url.rstrip("/"), **server, "models": profile.models}
    lines = [f"# {' '.join(comment.split())}\n" for comment in comments]
    text = "".join(lines) + tomlkit.dumps(msgspec.to_builtins(table, order="sorted"))
    make_folder(path.parent)
    replace_file(path, text.encode("utf-8", "replace"))
    return path


def _parse_profile(table: dict[str, Any]) -> Profile:
    table.pop("base_url", None)
    models = msgspec.convert(table.pop("models", {}), dict[str, dict[str, Any]])
    profile = Profile(msgspec.convert(table, Quirks), models, frozenset(table))
    for model in models:
        profile.quirks_for(model)  # raises now, and not during a request, if a field is invalid
    return profile
