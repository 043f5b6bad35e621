"""What the engine does for an editor: lists of models, and turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext

import msgspec

from tollbridge.bridge import Bridge
from tollbridge.catalogue import Catalogue, choose_models
from tollbridge.catalogue.choosing import corrected
from tollbridge.clients.gateway import GatewayClient
from tollbridge.core.messages import ChatRequest, Part
from tollbridge.core.models import Model
from tollbridge.core.places import catalogue_folder, database_file
from tollbridge.core.quirks import Quirks
from tollbridge.editors.vscode import wire as vscode
from tollbridge.editors.vscode.decode import decode_chat
from tollbridge.editors.vscode.encode import encode_model, encode_parts, encode_usage
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.healing import Learned, RememberedLessons
from tollbridge.profiles import UnreadableProfile, find_quirks
from tollbridge.recorder import Recorder, Tape
from tollbridge.settings import with_settings
from tollbridge.sidecar import wire
from tollbridge.sidecar.clients import Clients, Gateway
from tollbridge.sidecar.log import log
from tollbridge.toll import Toll
from tollbridge.usage import Payer, open_tracker

Report = Callable[[list[vscode.Part]], None]

# Models whose vocabularies are loaded beforehand; each takes some 40 MB.
WARMED = 3


class Turns:
    """Shared by all requests, and so holds no key: that comes with each of them.

    `changed` is told the base URL of a gateway whose list, fetched behind, differs from the one served.
    """

    def __init__(
        self, settings: wire.Settings, estimator: HybridTokenEstimator, changed: Callable[[str], object]
    ) -> None:
        self._estimator = estimator
        self._clients = Clients(settings, estimator)
        self._tracker = open_tracker(database_file())
        self._catalogue = Catalogue(catalogue_folder(), changed)
        self._lessons = RememberedLessons(self._quirks)

    async def change_settings(self, settings: wire.Settings) -> None:
        await self._clients.change_settings(settings)

    async def models(self, params: wire.Models) -> wire.ModelList:
        """Who insists on a new list is told why there is none; who does not is served the last one."""
        key = params.account.api_key or None
        async with self._clients.using(params.account) as gateway:
            listing = await self._catalogue.models(gateway.client, api_key=key, refresh=params.refresh)
        if listing.error is not None and params.refresh:
            raise listing.error
        models = choose_models(listing.models, self._clients.settings)
        self._warm([model.id for model in models])
        return wire.ModelList([encode_model(model) for model in models if model.is_chat_model])

    def _warm(self, models: list[str]) -> None:
        """Load the vocabularies of models that were talked to before: those of all would fill the memory."""
        used = [model for model in models if self._estimator.seen(model)]
        self._estimator.warm(*sorted(used, key=self._estimator.seen, reverse=True)[:WARMED])

    async def chat(self, params: wire.Chat, report: Report) -> wire.ChatResult:
        account = params.account
        key = account.api_key or None
        async with self._clients.using(account) as gateway:
            model = self._find(gateway.client, params.model, key)
            decoded = decode_chat(params, takes_files=model is None or model.capabilities.files)
            if decoded.dropped:
                log("info", f"not sent to {params.model}: {_listed(decoded.dropped)}")
            request = with_settings(decoded.request, self._clients.settings, account.base_url)
            learned = self._lessons.recall(gateway.client.base_url, request.model)
            async with self._tape(request, params, learned, model) as tape:
                client = gateway.client if tape is None else gateway.client.watched(tape)
                tell = _reporting(report, params.model)
                payer = Payer("editor", client.base_url)
                toll = self._toll(gateway, params.model)
                bridge = Bridge(client, self._tracker, toll, account=payer, lessons=self._lessons)
                turn = await bridge.answer(
                    request,
                    tell if tape is None else tape.heard(tell),
                    api_key=key,
                    window=model.limits.input if model is not None else None,
                    abilities=model.capabilities if model is not None else None,
                    learned=learned,
                )
                if tape is not None:
                    tape.finished(turn.finish_reason, turn.usage)
        usage = encode_usage(turn.context)
        if usage is not None:
            report([usage])
        return wire.ChatResult(
            finish_reason=turn.finish_reason,
            usage=wire.Tokens.of(turn.usage),
            context=wire.Tokens.of(turn.context),
            response_id=turn.response_id,
            dropped=decoded.dropped,
            changes=turn.changes,
            counts=turn.counts,
            warning=turn.warning,
            first_seconds=turn.first,
            seconds=turn.duration,
            lesson=self._estimator.lesson,
        )

    def _find(self, client: GatewayClient, name: str, key: str | None) -> Model | None:
        """What is known of a model, with what the settings say of it."""
        model = self._catalogue.find(client, name, api_key=key)
        return None if model is None else corrected(model, self._clients.settings)

    def _toll(self, gateway: Gateway, model: str) -> Toll:
        """One that asks, where the server is known to count: by what was just recalled."""
        quirks = self._lessons.profile(gateway.client.base_url, model)
        asks = quirks is not None and quirks.input_tokens
        return gateway.asking if asks and gateway.asking is not None else gateway.toll

    def _quirks(self, base_url: str, model: str) -> Quirks | None:
        """How the server wants to be talked to. A file that makes no sense stops nobody from chatting."""
        try:
            return find_quirks(base_url, model, owners=self._catalogue.owners(base_url))
        except UnreadableProfile as error:
            log("warning", error.message)
            return None

    def _tape(
        self, request: ChatRequest, params: wire.Chat, learned: Learned, model: Model | None
    ) -> AbstractAsyncContextManager[Tape | None]:
        """A tape for the turn, where turns are recorded. What the editor sent is on it without its key."""
        settings = self._clients.settings
        folder = settings.record_folder
        if folder is None:
            return nullcontext()
        recorder = Recorder(folder, redacted=settings.record_redact)
        said = msgspec.structs.replace(params, account=msgspec.structs.replace(params.account, api_key=None))
        return recorder.tape(
            request,
            said=said,
            keys=(params.account.api_key or "",),
            learned=learned,
            abilities=model.capabilities if model is not None else None,
        )

    async def usage(self) -> wire.Totals:
        failed = [record.model for record in self._tracker.records if record.outcome == "failed"]
        return wire.Totals(
            [
                wire.ModelTotals(
                    model=model,
                    requests=self._tracker.requests(model),
                    failures=failed.count(model),
                    usage=wire.Tokens.sum(self._tracker.total(model)),
                )
                for model in self._tracker.models()
            ],
            [wire.Accuracy.of(each) for each in self._estimator.accuracy()],
        )

    async def aclose(self) -> None:
        await self._catalogue.aclose()
        await self._clients.aclose()
        self._tracker.close()


def _reporting(report: Report, model: str) -> Callable[[list[Part]], None]:
    return lambda parts: report(encode_parts(parts, model))


def _listed(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in dropped.items())
