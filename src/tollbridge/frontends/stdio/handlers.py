"""Handle the editor's requests that need the engine: model lists, turns and usage."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tollbridge.config.accounts import Account
from tollbridge.config.loading import validate_settings
from tollbridge.engine import Engine
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.usage_page import encode_report, read_page
from tollbridge.frontends.vscode import wire as vscode
from tollbridge.frontends.vscode.decode import decode_chat
from tollbridge.frontends.vscode.encode import encode_models, encode_parts, encode_usage
from tollbridge.types.errors import RequestError

log = logging.getLogger(__name__)

# Waits while the editor does not read.
Report = Callable[[list[vscode.Part]], Awaitable[None]]

# The account name under which the editor's usage and model lists are stored, followed by the account's id.
EDITOR_ACCOUNT = "editor"
_ID_LIMIT = 100  # characters
# How many models get their vocabulary loaded in advance; each takes about 40 MB.
WARM_MODELS = 3
# Settings with the same name in the editor and in the settings file.
_SAME_NAME = (
    *("proxy", "allow_http", "allow", "deny", "favourites", "models"),
    *("context_management", "count_at_gateway", "prompt_caching", "record", "record_redact", "budgets"),
)


def editor_settings_layer(settings: wire.EditorSettings) -> dict[str, Any]:
    """Convert the editor's settings to a configuration layer, without those that the editor left out."""
    layer = {name: getattr(settings, name) for name in _SAME_NAME}
    timeouts = msgspec.structs.asdict(settings.timeouts)
    layer["timeouts"] = {name: seconds for name, seconds in timeouts.items() if seconds is not None}
    return {name: value for name, value in layer.items() if value not in (None, (), {})}


class Handlers:
    """Shared by all requests of an editor. Holds no key: each request brings its own.

    Args:
        settings: The editor's settings.
        estimator: Shared with the thread that answers token counts.
        on_models_changed: Called with the base URL of a gateway whose model list, refreshed in the
            background, differs from the one that was returned.
    """

    def __init__(
        self,
        settings: wire.EditorSettings,
        estimator: HybridTokenEstimator,
        on_models_changed: Callable[[str], object],
    ) -> None:
        self._engine = Engine.open(
            editor=editor_settings_layer(settings), estimator=estimator, on_models_changed=on_models_changed
        )

    async def aclose(self) -> None:
        await self._engine.aclose()

    async def change_settings(self, settings: wire.EditorSettings) -> None:
        await self._engine.change_settings(editor_settings_layer(settings))

    async def models(self, params: wire.ModelsParams) -> wire.ModelsResult:
        """Return the models for the picker; with `refresh`, a list that cannot be fetched is an error."""
        models = await self._engine.models(_account(params.account), refresh=params.refresh)
        self._warm([model.id for model in models])
        return wire.ModelsResult(encode_models(models))

    async def chat(self, params: wire.ChatParams, report: Report) -> wire.ChatResult:
        """Run one turn. Report its parts as they arrive, then the usage as the last part."""
        account = _account(params.account)
        model = self._engine.find_model(params.model, account)
        decoded = decode_chat(params, takes_files=model is None or model.capabilities.files)
        if decoded.dropped:
            dropped = ", ".join(f"{count} × {name}" for name, count in decoded.dropped.items())
            log.info("Not sent to %s: %s.", params.model, dropped)
        keyless = msgspec.structs.replace(params.account, api_key=None)
        source = msgspec.structs.replace(params, account=keyless)
        async with self._engine.turn(
            decoded.request, account, source=source, over_budget=params.over_budget
        ) as turn:
            async for parts in turn.parts():
                await report(encode_parts(parts, params.model))
        result = turn.result
        assert result is not None  # noqa: S101 - a turn without a result has raised
        usage = encode_usage(result.context)
        if usage is not None:
            await report([usage])
        return wire.ChatResult(
            finish_reason=result.finish_reason,
            usage=wire.TokenUsage.of(result.usage),
            context=wire.TokenUsage.of(result.context),
            cost=wire.TurnCost.of(result.cost),
            response_id=result.response_id,
            dropped=decoded.dropped,
            changes=result.changes,
            counts=result.counts,
            warning=result.warning,
            cache=wire.CacheInfo.of(result.cache),
            first_seconds=result.first,
            seconds=result.duration,
            lesson=self._engine.estimator.revision,
        )

    async def usage(self) -> wire.UsageResult:
        """Return the usage per model since the start, and the accuracy of the estimates."""
        tracker = self._engine.usage
        return wire.UsageResult(
            [
                wire.ModelTotals(
                    model=model,
                    requests=tracker.requests(model),
                    failures=tracker.failures(model),
                    incomplete=tracker.incomplete(model),
                    usage=wire.TokenUsage.sum(tracker.total(model)),
                )
                for model in tracker.models()
            ],
            [wire.AccuracyInfo.of(accuracy) for accuracy in self._engine.estimator.accuracy()],
        )

    async def usage_page(self) -> wire.UsagePageResult:
        """Return the usage page, which the editor shows in a webview."""
        return wire.UsagePageResult(read_page())

    async def usage_report(self, params: wire.UsageReportParams) -> msgspec.Raw:
        """Return the document that the usage page shows."""
        return msgspec.Raw(encode_report(await self._engine.usage_report(params.days), params.revision))

    def _warm(self, models: list[str]) -> None:
        """Load the vocabularies of the models used most: those of all models would fill the memory."""
        estimator = self._engine.estimator
        used = [model for model in models if estimator.seen(model)]
        estimator.warm(*sorted(used, key=estimator.seen, reverse=True)[:WARM_MODELS])


def _account(params: wire.AccountParams) -> Account:
    """Convert an editor's account.

    Without an id, two keys of a gateway cannot be distinguished after a restart, so a list that needed a key
    is not cached on disk.

    Raises:
        RequestError: The id is the key: ids are stored.
    """
    if params.id and params.id == params.api_key:
        raise RequestError("The id of an account must not be its key. Send another id, or none.")
    layer = {"headers": params.headers}
    return Account(
        f"{EDITOR_ACCOUNT}-{params.id[:_ID_LIMIT]}" if params.id else EDITOR_ACCOUNT,
        params.base_url,
        params.backend,
        "none",
        anonymous=bool(params.api_key and not params.id),
        api_key=params.api_key or None,
        headers=validate_settings(layer, lambda _: "editor").headers if params.headers else {},
    )
