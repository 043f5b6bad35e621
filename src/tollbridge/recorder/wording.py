"""Requests then and now: the body that was sent, beside the one that the code of today would send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tollbridge.clients.aisdk import PATHS, AiSdkClient, UiStreamClient
from tollbridge.clients.gateway import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.core.errors import RequestError
from tollbridge.core.json import read_json, write_json
from tollbridge.core.messages import ChatRequest
from tollbridge.recorder import redact
from tollbridge.recorder.lines import Sent

# Where two requests differ: the place, what stood there then, and what does now, as JSON.
Difference = tuple[str, str | None, str | None]
_NOTHING = object()
# Made up anew for every request.
_BY_CHANCE = {"auto": ("id",)}


def base_url_of(sent: Sent) -> str:
    """Where the client talked to: the address of a chat endpoint, or a gateway's without the route."""
    return sent.url if sent.protocol == "auto" else sent.url.rpartition("/")[0]


def body_of(sent: Sent) -> dict[str, Any]:
    try:
        body = read_json(sent.body)
    except ValueError as error:
        raise RequestError(f"The recorded body of the request to {sent.url} is not JSON: {error}.") from None
    if not isinstance(body, dict):
        raise RequestError(f"The recorded body of the request to {sent.url} is not a JSON object.")
    return body


def differences(sent: Sent, request: ChatRequest) -> list[Difference]:
    """Of a body that was kept. Secrets are blotted out of both."""
    now = redact.hide_secrets(_client(sent).worded(request))
    before, after = body_of(sent), read_json(now)
    for name in _BY_CHANCE.get(sent.protocol, ()):
        before.pop(name, None)
        after.pop(name, None)
    return list(_compared("", before, after))


def _client(sent: Sent) -> GatewayClient:
    base_url = base_url_of(sent)
    match sent.protocol:
        case "openresponses":
            return OpenResponsesClient(base_url)
        case "auto":
            return UiStreamClient(base_url)
        case _:
            specs = [spec for spec, path in PATHS.items() if base_url.endswith(path)]
            return AiSdkClient(base_url, spec=specs[0] if specs else 4)


def _compared(place: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            step = f"{place}.{name}" if place else str(name)
            yield from _compared(step, before.get(name, _NOTHING), after.get(name, _NOTHING))
    elif isinstance(before, list) and isinstance(after, list):
        for at in range(max(len(before), len(after))):
            items = [items[at] if at < len(items) else _NOTHING for items in (before, after)]
            yield from _compared(f"{place}[{at}]", *items)
    elif before is _NOTHING or after is _NOTHING or write_json(before) != write_json(after):
        yield place, _shown(before), _shown(after)


def _shown(value: Any) -> str | None:
    return None if value is _NOTHING else write_json(value)
