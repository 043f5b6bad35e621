"""The way to the server: whether it answers, how it is reached, what it lists, whether the key is good."""

from __future__ import annotations

from urllib.parse import urlsplit

from tollbridge.core.errors import BridgeError
from tollbridge.core.models import Model
from tollbridge.doctor.bench import Bench, Heard
from tollbridge.doctor.findings import Finding, amiss, not_seen, reason, unknown, well
from tollbridge.doctor.opening import opening
from tollbridge.gateways.catalog import read_models
from tollbridge.profiles import Known, known_server

_KEY = "Set TOLLBRIDGE_API_KEY (or AI_GATEWAY_API_KEY) to a key that this gateway accepts."
_ADDRESS = "Check the base URL: an address usually ends in /v1. Or say which model to use with --model."
# Where the list of models is refused and no model was named.
_REMEDIES = {"authentication": _KEY, "permission": _KEY, "not_found": _ADDRESS}
# What the first request says of the way, where it fails; anything else is the server's own word.
_NO_WAY = frozenset({"network", "timeout", "disconnected"})


async def reach(bench: Bench) -> Finding:
    bench.listed = heard = await bench.send("GET", "/models")
    if heard.error is not None and (heard.status is None or heard.error.kind in _NO_WAY):
        return amiss(
            reason(heard.error), "Check the base URL, the network connection and the proxy settings."
        )
    server = heard.headers.get("server")
    named = f" ({server[:60]})" if server else ""
    return well(f"{_place(bench)} answers{named}, in {heard.seconds * 1000:.0f} ms.")


async def tls_and_proxy(bench: Bench) -> Finding:
    proxy = bench.client.proxy()
    through = f"through the proxy {proxy}" if proxy else "with no proxy"
    if urlsplit(bench.client.base_url).scheme == "https":
        return well(f"https, with a certificate that this machine trusts, {through}.")
    return well(f"Plain http, {through}.")


async def models(bench: Bench) -> Finding:
    """Also chooses the model, where none was asked for."""
    found, error = _read(bench.listed)
    chat = [model for model in found if model.is_chat_model]
    bench.models = tuple(found)
    asked, bench.model = bench.model, bench.model or _pick(chat)
    chosen = f"; examined with {bench.model}" if bench.model and not asked else ""
    if error is not None or not chat:
        why = reason(error) if error is not None else "The list of models is empty."
        if bench.model:
            return amiss(why, "Models must be named by hand.")
        kind = error.kind if error is not None else ""
        return amiss(why, _REMEDIES.get(kind, "Say which model to use with --model."))
    if asked and asked not in [model.id for model in found]:
        return unknown(f"{len(found)} listed, and {asked} is not among them.", "It is asked all the same.")
    windows = sum(model.context_window is not None for model in chat)
    sized = f", the window of {windows} known" if windows else ", none with its window"
    return well(f"{len(found)} listed{sized}{chosen}.")


async def key(bench: Bench) -> Finding:
    """The list of models is often open to anyone: only an answer shows what a key is worth."""
    sent = "The key" if bench.client.has_key else "No key"
    if bench.model is None:
        heard = bench.listed or Heard()
        if heard.error is None or heard.error.kind not in ("authentication", "permission"):
            return unknown("Could not be seen without a model.")
    else:
        bench.opening = await opening(bench)
        heard = bench.opening.heard
    if heard.error is None:
        return well(f"{sent} was sent, and that is accepted.")
    if heard.error.kind in ("authentication", "permission"):
        return amiss(f"{sent} was sent, and the server says: {reason(heard.error)}", _KEY)
    return not_seen(heard.error)


def _place(bench: Bench) -> str:
    return urlsplit(bench.client.base_url).netloc.rpartition("@")[2]


def _read(heard: Heard | None) -> tuple[list[Model], BridgeError | None]:
    if heard is None or heard.error is not None:
        return [], heard.error if heard else None
    try:
        return read_models(heard.body), None
    except BridgeError as error:
        return [], error


def _pick(chat: list[Model]) -> str | None:
    """The cheapest that uses tools, where prices are known; else the first."""
    able = [model for model in chat if model.capabilities.tools] or chat
    priced = [model for model in able if model.prices and model.prices.output is not None]
    cheapest = min(priced, key=lambda model: (model.prices and model.prices.output) or 0, default=None)
    return cheapest.id if cheapest else able[0].id if able else None


def recognise(bench: Bench) -> Known | None:
    """The server, where it is one that is known: by what it says of itself, or by where it is."""
    replies = (bench.listed or Heard(), bench.first)
    headers = {name: value for heard in replies for name, value in heard.headers.items()}
    owners = {model.owner for model in bench.models if model.owner}
    return known_server(bench.client.base_url, headers, owners)
