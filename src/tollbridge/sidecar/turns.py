"""What the engine does for an editor: lists of models, and turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from tollbridge.bridge import Bridge
from tollbridge.client import GatewayClient
from tollbridge.client_aisdk import open_client
from tollbridge.core.messages import Part
from tollbridge.core.models import Model
from tollbridge.core.quirks import Quirks
from tollbridge.editors.vscode import wire as vscode
from tollbridge.editors.vscode.decode import decode_chat
from tollbridge.editors.vscode.encode import encode_model, encode_parts, encode_usage
from tollbridge.healing import RememberedLessons
from tollbridge.io.http import Timeouts
from tollbridge.profiles import UnreadableProfile, find_quirks
from tollbridge.sidecar import wire
from tollbridge.sidecar.log import log
from tollbridge.usage import UsageTracker

# A list younger than this is not fetched again unless the editor insists.
FRESH_SECONDS = 300.0
# Accounts whose lists are remembered; an editor has a handful.
CATALOGUE_LIMIT = 64

Report = Callable[[list[vscode.Part]], None]


class Turns:
    """Shared by all requests, and so holds no key: that comes with each of them."""

    def __init__(self, settings: wire.Settings) -> None:
        self._settings = settings
        self._clients: dict[tuple[str, str], GatewayClient] = {}
        self._retired: list[GatewayClient] = []
        self._tracker = UsageTracker()
        self._catalogue = Catalogue()
        self._lessons = RememberedLessons(_quirks)
        self._running = 0

    async def change_settings(self, settings: wire.Settings) -> None:
        """For the requests that come after; those under way end as they began."""
        self._settings = settings
        self._retired += self._clients.values()
        self._clients = {}
        await self._close_retired()

    async def models(self, params: wire.Models) -> wire.ModelList:
        models = await self._catalogue.models(self._client(params.account), params.account, params.refresh)
        return wire.ModelList([encode_model(model) for model in models if model.is_chat_model])

    async def chat(self, params: wire.Chat, report: Report) -> wire.ChatResult:
        model = self._catalogue.find(params.account, params.model)
        decoded = decode_chat(params, takes_files=model is None or model.capabilities.files)
        if decoded.dropped:
            log("info", f"not sent to {params.model}: {_listed(decoded.dropped)}")
        bridge = Bridge(self._client(params.account), self._tracker, lessons=self._lessons)
        self._running += 1
        try:
            turn = await bridge.answer(
                decoded.request,
                _reporting(report, params.model),
                api_key=params.account.api_key or None,
                abilities=model.capabilities if model is not None else None,
            )
        finally:
            self._running -= 1
            await self._close_retired()
        usage = encode_usage(turn.context)
        if usage is not None:
            report([usage])
        return wire.ChatResult(
            finish_reason=turn.finish_reason,
            usage=wire.Tokens.of(turn.usage) if turn.usage and turn.usage.known else None,
            response_id=turn.response_id,
            dropped=decoded.dropped,
            changes=turn.changes,
            first_seconds=turn.first,
            seconds=turn.duration,
        )

    async def usage(self) -> wire.Totals:
        failed = [record.model for record in self._tracker.records if record.outcome == "failed"]
        return wire.Totals(
            [
                wire.ModelTotals(
                    model=model,
                    requests=self._tracker.requests(model),
                    failures=failed.count(model),
                    usage=wire.Tokens.of(self._tracker.total(model)),
                )
                for model in self._tracker.models()
            ]
        )

    async def aclose(self) -> None:
        for client in (*self._clients.values(), *self._retired):
            await client.aclose()

    def _client(self, account: wire.Account) -> GatewayClient:
        name = account.backend, account.base_url
        client = self._clients.get(name)
        if client is None:
            settings = self._settings
            client = open_client(
                account.backend,
                account.base_url,
                timeouts=_timeouts(settings.timeouts),
                proxy=settings.proxy,
                allow_http=settings.allow_http,
            )
            self._clients[name] = client
        return client

    async def _close_retired(self) -> None:
        """Clients of earlier settings are closed when nothing can still be using them."""
        if self._running == 0:
            retired, self._retired = self._retired, []
            for client in retired:
                await client.aclose()


class Catalogue:
    """The last list of each account; two who ask at once share one fetch."""

    def __init__(self) -> None:
        self._lists: dict[int, tuple[float, dict[str, Model]]] = {}
        self._fetches: dict[int, asyncio.Task[list[Model]]] = {}

    async def models(self, client: GatewayClient, account: wire.Account, refresh: bool) -> list[Model]:
        name = _name(account)
        fetched, known = self._lists.get(name, (0.0, {}))
        if known and not refresh and time.monotonic() - fetched < FRESH_SECONDS:
            return list(known.values())
        fetch = self._fetches.get(name)
        if fetch is None:
            fetch = asyncio.ensure_future(client.models(api_key=account.api_key or None))
            self._fetches[name] = fetch
            fetch.add_done_callback(lambda done: self._keep(name, done))
        # Shielded: one who stops waiting does not take the list from the others.
        return await asyncio.shield(fetch)

    def find(self, account: wire.Account, model_id: str) -> Model | None:
        return self._lists.get(_name(account), (0.0, {}))[1].get(model_id)

    def _keep(self, name: int, fetch: asyncio.Task[list[Model]]) -> None:
        self._fetches.pop(name, None)
        if fetch.cancelled() or fetch.exception() is not None:
            return
        self._lists.pop(name, None)
        while len(self._lists) >= CATALOGUE_LIMIT:
            self._lists.pop(next(iter(self._lists)))
        self._lists[name] = (time.monotonic(), {model.id: model for model in fetch.result()})


def _quirks(base_url: str, model: str) -> Quirks | None:
    """How the server wants to be talked to. A file that makes no sense stops nobody from chatting."""
    try:
        return find_quirks(base_url, model)
    except UnreadableProfile as error:
        log("warning", error.message)
        return None


def _name(account: wire.Account) -> int:
    """Tells accounts apart without keeping their keys; salted anew in every process."""
    return hash((account.backend, account.base_url, account.api_key))


def _reporting(report: Report, model: str) -> Callable[[list[Part]], None]:
    return lambda parts: report(encode_parts(parts, model))


def _timeouts(asked: wire.Timeouts) -> Timeouts:
    given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    return Timeouts(**given)


def _listed(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in dropped.items())
