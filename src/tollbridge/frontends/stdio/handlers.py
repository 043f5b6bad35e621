"""Handle the editor's requests that need the engine: model lists, accounts, chats and usage."""

from __future__ import annotations

import logging
from contextlib import suppress

import msgspec

from tollbridge.engine import Engine
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.chat import ChatHandler
from tollbridge.frontends.stdio.editor_settings import convert_account, editor_settings_layer
from tollbridge.frontends.stdio.limits import LIMITS
from tollbridge.frontends.stdio.output import Output
from tollbridge.frontends.stdio.status_bar import StatusBar
from tollbridge.frontends.stdio.waiting import RETRIES
from tollbridge.frontends.usage_page import encode_report, read_page
from tollbridge.frontends.vscode.errors import encode_error
from tollbridge.frontends.vscode.models import encode_models
from tollbridge.storage.store import Store, StoreUnusable
from tollbridge.types.errors import BridgeError, NotAuthenticated, NotFound, RequestError, StreamError

log = logging.getLogger(__name__)


class Handlers:
    """Shared by all requests of an editor. Holds no key: each request brings its own.

    The store is not closed. The estimator is shared with the thread that answers token counts.
    """

    def __init__(
        self,
        settings: wire.EditorSettings,
        store: Store | None,
        estimator: HybridTokenEstimator,
        output: Output,
    ) -> None:
        self._engine = Engine.open(
            editor=editor_settings_layer(settings),
            store=store,
            estimator=estimator,
            on_models_changed=output.report_models_changed,
            retries=RETRIES,
        )
        self._status_bar = StatusBar()
        self.chats: ChatHandler = ChatHandler(self._engine, output, self._status_bar, settings)

    async def aclose(self) -> None:
        await self._engine.aclose()

    async def change_settings(self, settings: wire.EditorSettings) -> None:
        self.chats.settings = settings
        await self._engine.change_settings(editor_settings_layer(settings))

    async def models(self, params: wire.ModelsParams) -> wire.ModelsResult:
        """Return the models for the picker; with `refresh`, a list that cannot be fetched is an error."""
        models = await self._engine.models(convert_account(params.account), refresh=params.refresh)
        # Load the vocabularies of the models used most: those of all models would fill the memory.
        estimator = self._engine.estimator
        used = [model.id for model in models if estimator.seen(model.id)]
        estimator.warm(*sorted(used, key=estimator.seen, reverse=True)[: LIMITS.warm_models])
        return wire.ModelsResult(encode_models(models))

    async def check_account(self, params: wire.CheckAccountParams) -> wire.CheckAccountResult:
        """Test an account: fetch its models, also from `…/v1` if its own URL has none."""
        account = params.account
        try:
            return await self._count_models(account)
        except (NotFound, StreamError) as error:
            if not account.base_url.rstrip("/").endswith("/v1"):
                with_version = msgspec.structs.replace(account, base_url=account.base_url.rstrip("/") + "/v1")
                with suppress(BridgeError):
                    return await self._count_models(with_version)
            message = f"There is no list of models at this URL, which usually ends in /v1. {error.message}"
            return wire.CheckAccountResult(account.base_url, "warning", message)
        except RequestError as error:
            return wire.CheckAccountResult(account.base_url, "error", error.message)
        except BridgeError as error:
            return wire.CheckAccountResult(account.base_url, "warning", encode_error(error, {})[0])

    async def _count_models(self, account: wire.AccountParams) -> wire.CheckAccountResult:
        try:
            count = len(await self._engine.models(convert_account(account), refresh=True))
        except NotAuthenticated as error:
            if account.api_key:
                return wire.CheckAccountResult(account.base_url, "warning", error.message)
            message = f"{account.base_url} answers and needs an API key."
        else:
            message = f"{account.base_url} has {count} {'model' if count == 1 else 'models'}."
        return wire.CheckAccountResult(account.base_url, "info", message)

    async def usage(self, params: wire.UsageParams | None) -> wire.UsageResult:
        """Return the usage per model since the start, the accuracy of the estimates, and the costs."""
        tracker = self._engine.usage
        last = self._status_bar.last
        conversation = (params.conversation if params else None) or (last.conversation if last else None)
        today, chat, budgets = await self._read_costs(conversation)
        return wire.UsageResult(
            [
                wire.ModelTotals(
                    model=model,
                    requests=tracker.requests(model),
                    failures=tracker.failures(model),
                    incomplete=tracker.incomplete(model),
                    usage=wire.TokenUsage.copy_of(tracker.total(model)),
                )
                for model in tracker.models()
            ],
            [wire.AccuracyInfo.copy_of(accuracy) for accuracy in self._engine.estimator.accuracy()],
            today,
            chat,
            budgets,
            self._status_bar.format(today, chat, budgets),
        )

    async def _read_costs(
        self, conversation: str | None
    ) -> tuple[wire.Spending, wire.Spending | None, tuple[wire.BudgetInfo, ...]]:
        """Return the costs of today and of a conversation, and the budgets: nothing without a database."""
        try:
            today, chat = await self._engine.spending(conversation)
            budgets = await self._engine.budgets()
        except StoreUnusable as error:
            log.warning("%s", error.message)
            return wire.Spending(0), None, ()
        return (
            wire.Spending.of(today),
            None if chat is None else wire.Spending.of(chat),
            tuple(wire.BudgetInfo(each.budget.label, each.budget.limit, each.spent) for each in budgets),
        )

    async def usage_page(self) -> wire.UsagePageResult:
        """Return the usage page, which the editor shows in a webview."""
        return wire.UsagePageResult(read_page())

    async def usage_report(self, params: wire.UsageReportParams) -> msgspec.Raw:
        """Return the document that the usage page shows."""
        return msgspec.Raw(encode_report(await self._engine.usage_report(params.days), params.revision))
