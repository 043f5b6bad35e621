"""What the engine does for an editor: lists of models, and turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tollbridge.bridge import Bridge
from tollbridge.catalogue import Catalogue
from tollbridge.core.messages import Part
from tollbridge.core.quirks import Quirks
from tollbridge.editors.vscode import wire as vscode
from tollbridge.editors.vscode.decode import decode_chat
from tollbridge.editors.vscode.encode import encode_model, encode_parts, encode_usage
from tollbridge.healing import RememberedLessons
from tollbridge.profiles import UnreadableProfile, find_quirks
from tollbridge.settings.places import cache_folder, database_file
from tollbridge.sidecar import wire
from tollbridge.sidecar.clients import Clients
from tollbridge.sidecar.estimator import SharedEstimator
from tollbridge.sidecar.log import log
from tollbridge.usage import Payer, open_tracker

Report = Callable[[list[vscode.Part]], None]


class Turns:
    """Shared by all requests, and so holds no key: that comes with each of them.

    `changed` is told the base URL of a gateway whose list, fetched behind, differs from the one served.
    """

    def __init__(
        self, settings: wire.Settings, estimator: SharedEstimator, changed: Callable[[str], object]
    ) -> None:
        self._estimator = estimator
        self._clients = Clients(settings, estimator)
        self._tracker = open_tracker(database_file())
        self._catalogue = Catalogue(cache_folder() / "catalogue", changed)
        self._lessons = RememberedLessons(_quirks)

    async def change_settings(self, settings: wire.Settings) -> None:
        await self._clients.change_settings(settings)

    async def models(self, params: wire.Models) -> wire.ModelList:
        """Who insists on a new list is told why there is none; who does not is served the last one."""
        key = params.account.api_key or None
        async with self._clients.using(params.account) as gateway:
            listing = await self._catalogue.models(gateway.client, api_key=key, refresh=params.refresh)
        if listing.error is not None and params.refresh:
            raise listing.error
        return wire.ModelList([encode_model(model) for model in listing.models if model.is_chat_model])

    async def chat(self, params: wire.Chat, report: Report) -> wire.ChatResult:
        account = params.account
        key = account.api_key or None
        async with self._clients.using(account) as gateway:
            model = self._catalogue.find(gateway.client, params.model, api_key=key)
            decoded = decode_chat(params, takes_files=model is None or model.capabilities.files)
            if decoded.dropped:
                log("info", f"not sent to {params.model}: {_listed(decoded.dropped)}")
            payer = Payer("", account.base_url)
            bridge = Bridge(gateway.client, self._tracker, gateway.toll, account=payer, lessons=self._lessons)
            turn = await bridge.answer(
                decoded.request,
                _reporting(report, params.model),
                api_key=key,
                window=model.limits.input if model is not None else None,
                abilities=model.capabilities if model is not None else None,
            )
        usage = encode_usage(turn.context)
        if usage is not None:
            report([usage])
        return wire.ChatResult(
            finish_reason=turn.finish_reason,
            usage=wire.Tokens.of(turn.usage) if turn.usage and turn.usage.known else None,
            response_id=turn.response_id,
            dropped=decoded.dropped,
            changes=turn.changes,
            warning=turn.preflight.warning if turn.preflight else None,
            first_seconds=turn.first,
            seconds=turn.duration,
            lesson=self._estimator.lesson,
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


def _quirks(base_url: str, model: str) -> Quirks | None:
    """How the server wants to be talked to. A file that makes no sense stops nobody from chatting."""
    try:
        return find_quirks(base_url, model)
    except UnreadableProfile as error:
        log("warning", error.message)
        return None
