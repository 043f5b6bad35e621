"""What the engine does for an editor: lists of models, and turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import msgspec

from tollbridge.catalog.models import Catalog, apply_model_settings, filter_models
from tollbridge.clients.base import GatewayClient
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.compat.profiles import CompatMemory, LearnedQuirks, UnreadableProfile, find_quirks
from tollbridge.config.loading import load_settings
from tollbridge.config.paths import catalog_folder, config_file, database_file
from tollbridge.config.request_options import apply_settings
from tollbridge.config.schema import Settings, http_timeouts
from tollbridge.engine import open_client
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.server import log
from tollbridge.frontends.vscode import wire as vscode
from tollbridge.frontends.vscode.decode import decode_chat
from tollbridge.frontends.vscode.encode import encode_model, encode_parts, encode_usage
from tollbridge.recorder.recorder import Recorder, RecordingWriter
from tollbridge.storage.tracker import BillingAccount, open_tracker
from tollbridge.turn import Bridge, TokenAccounting
from tollbridge.types.messages import ChatRequest, Part
from tollbridge.types.models import Model
from tollbridge.types.quirks import Quirks

# SECTION What an editor sets, as a layer of the settings.

# Settings that are spelled here as in the settings file. What an editor leaves out is nobody's choice.
_SAME = (
    *("proxy", "allow_http", "allow", "deny", "favourites", "models"),
    *("context_management", "count_at_gateway", "record", "record_redact"),
)


def editor_settings_layer(settings: wire.EditorSettings) -> dict[str, Any]:
    given = {name: getattr(settings, name) for name in _SAME}
    times = msgspec.structs.asdict(settings.timeouts)
    given["timeouts"] = {name: seconds for name, seconds in times.items() if seconds is not None}
    return {name: value for name, value in given.items() if value not in (None, (), {})}


# SECTION A client for every gateway the editor has an account at, and what is learned of each. No keys.


class Connection(msgspec.Struct, frozen=True):
    """`asking` also asks the gateway itself how long a conversation is, where that may be asked."""

    client: GatewayClient
    toll: TokenAccounting
    asking: TokenAccounting | None = None

    async def aclose(self) -> None:
        await self.toll.aclose()
        if self.asking is not None:
            await self.asking.aclose()
        await self.client.aclose()


class Clients:
    """Made when they are first needed, with the settings of that moment; anew when the file has changed."""

    def __init__(self, settings: wire.EditorSettings, estimator: HybridTokenEstimator) -> None:
        self._told = settings
        self._loaded: Settings | None = None  # once they could be read
        self._stamp: tuple[int, int] | None = None  # of the file, as it was then
        self._estimator = estimator
        self._gateways: dict[tuple[str, str], Connection] = {}
        self._retired: list[Connection] = []
        self._users = 0

    @property
    def settings(self) -> Settings:
        """Those in force. Read again while they cannot be: a file that is mended counts at once."""
        if self._loaded is None:
            self._stamp = _stamp()
            self._loaded = load_settings(editor=editor_settings_layer(self._told)).settings
        return self._loaded

    @asynccontextmanager
    async def using(self, account: wire.AccountParams) -> AsyncIterator[Connection]:
        """What is used is not closed, whatever settings come meanwhile."""
        self._users += 1
        try:
            if self._loaded is not None and self._stamp != _stamp():
                self._begin_anew()
            yield self._gateway(account)
        finally:
            self._users -= 1
            await self._close_retired()

    async def change_settings(self, settings: wire.EditorSettings) -> None:
        """For the requests that come after; those under way end as they began."""
        self._told = settings
        self._begin_anew()
        await self._close_retired()

    async def aclose(self) -> None:
        for gateway in (*self._gateways.values(), *self._retired):
            await gateway.aclose()

    def _begin_anew(self) -> None:
        self._loaded = None
        self._retired += self._gateways.values()
        self._gateways = {}

    def _gateway(self, account: wire.AccountParams) -> Connection:
        name = account.backend, account.base_url
        if name not in self._gateways:
            settings = self.settings
            client = open_client(
                account.backend,
                account.base_url,
                timeouts=http_timeouts(settings),
                proxy=settings.proxy,
                allow_http=settings.allow_http,
            )
            asking = None
            if settings.count_at_gateway and isinstance(client, OpenResponsesClient):
                asking = TokenAccounting(self._estimator, client)
            self._gateways[name] = Connection(client, TokenAccounting(self._estimator), asking)
        return self._gateways[name]

    async def _close_retired(self) -> None:
        if self._users == 0:
            retired, self._retired = self._retired, []
            for gateway in retired:
                await gateway.aclose()


def _stamp() -> tuple[int, int] | None:
    """By what a settings file is known to be another than before; `None` where there is none."""
    try:
        found = config_file().stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# SECTION What the engine does for an editor: lists of models, and turns.

Report = Callable[[list[vscode.Part]], None]

# Models whose vocabularies are loaded beforehand; each takes some 40 MB.
WARMED = 3


class Handlers:
    """Shared by all requests, and so holds no key: that comes with each of them.

    `changed` is told the base URL of a gateway whose list, fetched behind, differs from the one served.
    """

    def __init__(
        self, settings: wire.EditorSettings, estimator: HybridTokenEstimator, changed: Callable[[str], object]
    ) -> None:
        self._estimator = estimator
        self._clients = Clients(settings, estimator)
        self._tracker = open_tracker(database_file())
        self._catalogue = Catalog(catalog_folder(), changed)
        self._lessons = CompatMemory(self._quirks)

    async def change_settings(self, settings: wire.EditorSettings) -> None:
        await self._clients.change_settings(settings)

    async def models(self, params: wire.ModelsParams) -> wire.ModelsResult:
        """Who insists on a new list is told why there is none; who does not is served the last one."""
        key = params.account.api_key or None
        async with self._clients.using(params.account) as gateway:
            listing = await self._catalogue.models(gateway.client, api_key=key, refresh=params.refresh)
        if listing.error is not None and params.refresh:
            raise listing.error
        models = filter_models(listing.models, self._clients.settings)
        self._warm([model.id for model in models])
        return wire.ModelsResult([encode_model(model) for model in models if model.is_chat_model])

    def _warm(self, models: list[str]) -> None:
        """Load the vocabularies of models that were talked to before: those of all would fill the memory."""
        used = [model for model in models if self._estimator.seen(model)]
        self._estimator.warm(*sorted(used, key=self._estimator.seen, reverse=True)[:WARMED])

    async def chat(self, params: wire.ChatParams, report: Report) -> wire.ChatResult:
        account = params.account
        key = account.api_key or None
        async with self._clients.using(account) as gateway:
            model = self._find(gateway.client, params.model, key)
            decoded = decode_chat(params, takes_files=model is None or model.capabilities.files)
            if decoded.dropped:
                log("info", f"not sent to {params.model}: {_listed(decoded.dropped)}")
            request = apply_settings(decoded.request, self._clients.settings, account.base_url)
            learned = self._lessons.recall(gateway.client.base_url, request.model)
            async with self._tape(request, params, learned, model) as tape:
                client = gateway.client if tape is None else gateway.client.observed_by(tape)
                tell = _reporting(report, params.model)
                payer = BillingAccount("editor", client.base_url)
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
            usage=wire.TokenUsage.of(turn.usage),
            context=wire.TokenUsage.of(turn.context),
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
        return None if model is None else apply_model_settings(model, self._clients.settings)

    def _toll(self, gateway: Connection, model: str) -> TokenAccounting:
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
        self, request: ChatRequest, params: wire.ChatParams, learned: LearnedQuirks, model: Model | None
    ) -> AbstractAsyncContextManager[RecordingWriter | None]:
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

    async def usage(self) -> wire.UsageResult:
        failed = [record.model for record in self._tracker.records if record.outcome == "failed"]
        return wire.UsageResult(
            [
                wire.ModelTotals(
                    model=model,
                    requests=self._tracker.requests(model),
                    failures=failed.count(model),
                    usage=wire.TokenUsage.sum(self._tracker.total(model)),
                )
                for model in self._tracker.models()
            ],
            [wire.AccuracyInfo.of(each) for each in self._estimator.accuracy()],
        )

    async def aclose(self) -> None:
        await self._catalogue.aclose()
        await self._clients.aclose()
        self._tracker.close()


def _reporting(report: Report, model: str) -> Callable[[list[Part]], None]:
    return lambda parts: report(encode_parts(parts, model))


def _listed(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in dropped.items())
