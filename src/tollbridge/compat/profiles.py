"""What was learned of each model at each gateway, so that the second request is right at once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from hashlib import blake2s
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from tollbridge.config.paths import data_folder
from tollbridge.types.errors import RequestError
from tollbridge.types.quirks import LearnedQuirks as LearnedQuirks
from tollbridge.types.quirks import Quirks
from tollbridge.types.urls import is_loopback

# SECTION What is known of one server: its quirks, and those that only some of its models have.

# What depends on the server alone; everything else may be otherwise for its next model.
OF_SERVERS = frozenset({"calls", "system", "text_as", "tools_as", "input_tokens"})
# Of the fields that are left out, those that a server refuses whatever the model.
REFUSED_BY_SERVERS = frozenset({"store"})


class Profile(msgspec.Struct, frozen=True):
    """`models` holds, by model, the quirks that are its own; `said` names those that are said of them all."""

    quirks: Quirks = Quirks()
    models: Mapping[str, Mapping[str, Any]] = {}
    said: frozenset[str] = frozenset(Quirks.__struct_fields__)

    @classmethod
    def measured(cls, model: str, quirks: Quirks) -> Profile:
        """What was seen with one model, shared out between its server and itself."""
        fields = msgspec.structs.asdict(quirks)
        server = {name: value for name, value in fields.items() if name in OF_SERVERS}
        own = {name: value for name, value in fields.items() if name not in OF_SERVERS}
        server["without"] = quirks.without & REFUSED_BY_SERVERS
        own["without"] = quirks.without - REFUSED_BY_SERVERS
        return cls(Quirks(**server), {model: own}, frozenset(server))

    def of(self, model: str, known: Quirks | None = None) -> Quirks:
        """The quirks for one model. What either leaves out is left out; what neither speaks of is as it is
        `known` to be with such servers."""
        known, own = known or Quirks(), self.models.get(model, {})
        said = {name: getattr(self.quirks, name) for name in self.said}
        server = self.quirks.without
        without = server.union(own["without"]) if "without" in own else server | known.without
        return apply_findings(known, {**said, **own, "without": without})


def apply_findings(quirks: Quirks, fields: Mapping[str, Any]) -> Quirks:
    """The quirks with these fields; raises `msgspec.ValidationError` where one makes no sense."""
    return msgspec.convert({**msgspec.structs.asdict(quirks), **fields}, Quirks)


# SECTION The servers Tollbridge knows: how each is recognised, and its quirks. The data is in `data/`.


class Marks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server is recognised by; one that fits is enough.

    `ports` count on this very machine alone. `headers` are those of any reply, with the beginning of their
    value; `owners` are what the list of models names as `owned_by`.
    """

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    headers: Mapping[str, str] = {}
    owners: tuple[str, ...] = ()


class KnownServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    marks: Marks
    quirks: Quirks = Quirks()


@cache
def known_servers() -> tuple[KnownServer, ...]:
    folder = files("tollbridge.compat") / "data"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return tuple(msgspec.toml.decode((folder / name).read_bytes(), type=KnownServer) for name in names)


def known_quirks(name: str) -> Quirks:
    """The quirks of a server that needs no recognising: whoever asks has started it."""
    return next(known.quirks for known in known_servers() if known.name == name)


def known_server(
    base_url: str, headers: Mapping[str, str] | None = None, owners: Collection[str] = ()
) -> KnownServer | None:
    """The server at a base URL. What it says of itself counts for more than where it is."""
    said = [known for known in known_servers() if _says_so(known.marks, headers or {}, owners)]
    placed = [known for known in known_servers() if _is_at(known.marks, base_url)]
    return next(iter([*said, *placed]), None)


def _says_so(marks: Marks, headers: Mapping[str, str], owners: Collection[str]) -> bool:
    if any(owner in owners for owner in marks.owners):
        return True
    return any(
        name in headers and headers[name].startswith(beginning) for name, beginning in marks.headers.items()
    )


def _is_at(marks: Marks, base_url: str) -> bool:
    try:
        place = urlsplit(base_url)
        port = place.port
    except ValueError:
        return False
    host = place.hostname or ""
    return host in marks.hosts or (port in marks.ports and is_loopback(host))


# SECTION Profiles on disk: a file of TOML for each base URL, written by `tollbridge doctor`, open to any pen.


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


def load_profile(base_url: str, folder: Path | None = None) -> Profile | None:
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


def save_profile(
    base_url: str, model: str, quirks: Quirks, comments: Iterable[str] = (), folder: Path | None = None
) -> Path:
    """Writes what was found with one model. What was found with others before stays."""
    path = profile_file(base_url, folder)
    found = Profile.measured(model, quirks)
    earlier: Mapping[str, Mapping[str, Any]] = {}
    with contextlib.suppress(UnreadableProfile):
        before = load_profile(base_url, folder)
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


# SECTION The quirks of a server: what was measured there, laid over what is known of servers like it.


def find_quirks(
    base_url: str, model: str, folder: Path | None = None, *, owners: Collection[str] = ()
) -> Quirks | None:
    """`None` where nothing is known. `owners` are those that the server's list of models names.

    Raises `UnreadableProfile` where a file is not what it should be.
    """
    known = known_server(base_url, owners=owners)
    quirks = known.quirks if known else None
    kept = load_profile(base_url, folder)
    return quirks if kept is None else kept.of(model, quirks)


# SECTION What was learned of each model at each gateway, so that the second request is right at once.

# Models remembered, and refused proofs and calls remembered for each; the oldest are forgotten.
MODEL_LIMIT = 256
REFUSED_LIMIT = 4_096


class CompatStore(Protocol):
    def recall(self, base_url: str, model: str) -> LearnedQuirks: ...

    def learn(self, base_url: str, model: str, learned: LearnedQuirks) -> None: ...


class CompatMemory:
    """In memory. `profile` says what is known of a model's server: where that has changed since, because a
    file was written or a list was read, what was learned begins anew from it."""

    def __init__(self, profile: Callable[[str, str], Quirks | None] | None = None) -> None:
        self._profile = profile
        self._known: dict[tuple[str, str], tuple[Quirks | None, LearnedQuirks]] = {}

    def recall(self, base_url: str, model: str) -> LearnedQuirks:
        told = self._profile(base_url, model) if self._profile is not None else None
        before, learned = self._known.get((base_url, model), (None, None))
        if learned is None or before != told:
            learned = LearnedQuirks(told or Quirks())
            self._keep(base_url, model, told, learned)
        return learned

    def profile(self, base_url: str, model: str) -> Quirks | None:
        """What was known of the server beforehand when it was last recalled; `None`: nothing was."""
        return self._known.get((base_url, model), (None, None))[0]

    def learn(self, base_url: str, model: str, learned: LearnedQuirks) -> None:
        told, _ = self._known.get((base_url, model), (None, None))
        self._keep(base_url, model, told, learned)

    def _keep(self, base_url: str, model: str, told: Quirks | None, learned: LearnedQuirks) -> None:
        self._known.pop((base_url, model), None)
        while len(self._known) >= MODEL_LIMIT:
            self._known.pop(next(iter(self._known)))
        self._known[(base_url, model)] = told, learned
