"""Extra request headers in the settings: which are valid, and where secret values come from."""

from __future__ import annotations

import os
import re

from tollbridge.config.errors import SettingsUnusable
from tollbridge.config.keyring import read_keyring
from tollbridge.config.schema import Headers, SecretHeader

# Headers that belong to the connection or to the protocol, which a setting would break.
_RESERVED_HEADERS = frozenset(
    "accept accept-encoding connection content-encoding content-length content-type expect host keep-alive "
    "te trailer transfer-encoding upgrade".split()
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,4096}")
_HEADER_SOURCE = re.compile(r"environment:[A-Za-z_][A-Za-z0-9_]*|keyring:[\x21-\x7e]{1,200}")
# The names of headers that hold a key, and values that are one.
_SECRET_NAME = re.compile(
    r"authorization|cookie|credential|passw|secret|(^|[-_])(api)?key$|(^|[-_])token$", re.I
)
_SECRET_VALUE = re.compile(
    r"(?i:bearer|basic|token)\s+\S"  # the value of an authorization header
    r"|(sk|pk|rk|hf|gsk|vck|xai|gh[a-z]|xox[a-z])[-_]\w{8}"  # the prefixes of some providers
    r"|AIza\w{8}|eyJ[\w-]+\.[\w-]+\."  # Google's keys; JSON Web Tokens
)
_RANDOM_VALUE = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[\w+/=-]{32,}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)

HEADER_ADVICE = 'Name its source instead: { secret = "environment:NAME" }, or "keyring:NAME"'


def header_problem(name: str, value: str | SecretHeader, advice: str = HEADER_ADVICE) -> str | None:
    """Return why a header is not valid in the settings, or `None`. The text does not contain the value.

    `advice` says what to do if the value looks like a key.
    """
    if not _HEADER_NAME.fullmatch(name):
        return "not a valid header name"
    if name.lower() in _RESERVED_HEADERS:
        return "cannot be set here; Tollbridge controls this header"
    if isinstance(value, SecretHeader):
        if not _HEADER_SOURCE.fullmatch(value.secret):
            # The value may be the secret itself, so the message does not repeat it.
            return "secret must be environment:NAME or keyring:NAME (not the value itself)"
        return None
    if not _HEADER_VALUE.fullmatch(value):
        return "must be 1 to 4096 printable ASCII characters"
    is_random = _RANDOM_VALUE.fullmatch(value) and not _UUID.fullmatch(value)
    if _SECRET_NAME.search(name) or _SECRET_VALUE.match(value) or is_random:
        return f"looks like a key, which settings must not contain. {advice}"
    return None


def plain_headers(headers: Headers) -> dict[str, str]:
    """Return the headers whose values are in the settings."""
    return {name: value for name, value in headers.items() if isinstance(value, str)}


def find_secret_headers(headers: Headers) -> dict[str, str]:
    """Return the values of the secret headers, from the environment or the system keyring.

    Raises:
        SettingsUnusable: If a value is not set or has invalid characters. The message does not contain it.
        KeyringUnusable: If the keyring is needed and cannot be used.
    """
    return {
        name: _find_secret(name, header.secret)
        for name, header in headers.items()
        if isinstance(header, SecretHeader)
    }


def _find_secret(name: str, source: str) -> str:
    kind, _, entry = source.partition(":")
    value = os.environ.get(entry) if kind == "environment" else read_keyring(entry)
    value = (value or "").strip()
    if not value:
        place = "environment variable" if kind == "environment" else "keyring entry"
        message = f"The header {name} needs the {place} {entry}, which is not set."
        raise SettingsUnusable(message, "Set it, or remove the header.")
    if not _HEADER_VALUE.fullmatch(value):
        raise SettingsUnusable(f"The value of {source} contains invalid characters.", "Set it again.")
    return value
