"""What the engine does for an editor: lists of models, and turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tollbridge.bridge import Bridge, Turn
from tollbridge.catalogue import Catalogue, choose_models
from tollbridge.catalogue.choosing import corrected
from tollbridge.client import GatewayClient
from tollbridge.client_aisdk import open_client
from tollbridge.core.messages import ChatRequest, Part
from tollbridge.core.models import Model
from tollbridge.editors.vscode import wire as vscode
from tollbridge.editors.vscode.decode import decode_chat
from tollbridge.editors.vscode.encode import encode_model, encode_parts, encode_usage
from tollbridge.recorder import Recorder
from tollbridge.settings import Settings, load, with_settings
from tollbridge.settings.network import http_timeouts
from tollbridge.settings.places import catalogue_folder, database_file
from tollbridge.sidecar import wire
from tollbridge.sidecar.log import log
from tollbridge.sidecar.told import editor_layer
from tollbridge.usage import Payer, open_tracker

Report = Callable[[list[vscode.Part]], None]


class Turns:
    """Shared by all requests, and so holds no key: that comes with each of them."""

    def __init__(self, settings: wire.Settings) -> None:
        self._told = settings
        self._loaded: Settings | None = None  # once they could be read
        self._clients: dict[tuple[str, str], GatewayClient] = {}
        self._retired: list[GatewayClient] = []
        self._tracker = open_tracker(database_file())
        self._catalogue = Catalogue(catalogue_folder())
        self._running = 0

    async def change_settings(self, settings: wire.Settings) -> None:
        """For the requests that come after; those under way end as they began."""
        self._told, self._loaded = settings, None
        self._retired += self._clients.values()
        self._clients = {}
        await self._close_retired()

    async def models(self, params: wire.Models) -> wire.ModelList:
        listing = await self._catalogue.models(
            self._client(params.account), api_key=params.account.api_key or None, refresh=params.refresh
        )
        if listing.error is not None:
            log("warning", f"the list of models is an older one: {listing.error.message}")
        models = choose_models(listing.models, self._settings())
        return wire.ModelList([encode_model(model) for model in models if model.is_chat_model])

    async def chat(self, params: wire.Chat, report: Report) -> wire.ChatResult:
        model = self._find(params)
        decoded = decode_chat(params, takes_files=model is None or model.capabilities.files)
        if decoded.dropped:
            log("info", f"not sent to {params.model}: {_listed(decoded.dropped)}")
        request = with_settings(decoded.request, self._settings(), params.account.base_url)
        self._running += 1
        try:
            turn = await self._answered(params, request, model, _reporting(report))
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

    async def _answered(
        self,
        params: wire.Chat,
        request: ChatRequest,
        model: Model | None,
        report: Callable[[list[Part]], object],
    ) -> Turn:
        """The turn, on a tape where turns are recorded."""
        account, settings = params.account, self._settings()
        client = self._client(account)
        if settings.record is None:
            return await self._bridge(client).answer(
                request, report, api_key=account.api_key or None, **_known(model)
            )
        recorder = Recorder(Path(settings.record), redacted=settings.record_redact)
        said = msgspec.structs.replace(params, account=msgspec.structs.replace(account, api_key=None))
        async with recorder.tape(request, said=said, keys=(account.api_key or "",)) as tape:
            turn = await self._bridge(client.watched(tape)).answer(
                request, tape.heard(report), api_key=account.api_key or None, **_known(model)
            )
            tape.finished(turn.finish_reason, turn.usage)
        return turn

    def _bridge(self, client: GatewayClient) -> Bridge:
        return Bridge(client, self._tracker, account=Payer("editor", client.base_url))

    def _find(self, params: wire.Chat) -> Model | None:
        """What is known of the model, with what the settings say of it."""
        client, key = self._client(params.account), params.account.api_key or None
        model = self._catalogue.find(client, params.model, api_key=key)
        return None if model is None else corrected(model, self._settings())

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
        await self._catalogue.aclose()
        self._tracker.close()
        for client in (*self._clients.values(), *self._retired):
            await client.aclose()

    def _client(self, account: wire.Account) -> GatewayClient:
        name = account.backend, account.base_url
        client = self._clients.get(name)
        if client is None:
            settings = self._settings()
            client = open_client(
                account.backend,
                account.base_url,
                timeouts=http_timeouts(settings),
                proxy=settings.proxy,
                allow_http=settings.allow_http,
            )
            self._clients[name] = client
        return client

    def _settings(self) -> Settings:
        """Read again while they cannot be: a file that is mended counts at once."""
        if self._loaded is None:
            self._loaded = load(editor=editor_layer(self._told)).settings
        return self._loaded

    async def _close_retired(self) -> None:
        """Clients of earlier settings are closed when nothing can still be using them."""
        if self._running == 0:
            retired, self._retired = self._retired, []
            for client in retired:
                await client.aclose()


def _reporting(report: Report) -> Callable[[list[Part]], None]:
    return lambda parts: report(encode_parts(parts))


def _known(model: Model | None) -> dict[str, Any]:
    """What the bridge can use of what is known of a model."""
    return {} if model is None else {"window": model.limits.input, "abilities": model.capabilities}


def _listed(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in dropped.items())
