"""Handle the editor's requests that need the engine: model lists, turns and usage.

`StatusBar` makes the texts of the editor's status bar item here and not in the extension, so that every
editor can show the same.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import msgspec

from tollbridge.clients.base import Observer
from tollbridge.config.loading import validate_settings
from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.frontends.usage_page import encode_report, read_page
from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.codec import (
    decode_chat,
    encode_error,
    encode_models,
    encode_parts,
    encode_usage,
)
from tollbridge.frontends.vscode.images import ImageWriter, is_image
from tollbridge.storage.budgets import format_dollars
from tollbridge.storage.store import Store, StoreUnusable
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import (
    BridgeError,
    ContextTooLong,
    Kind,
    NotAuthenticated,
    NotFound,
    RequestError,
    StreamError,
)
from tollbridge.types.messages import ChatRequest, DataPart, Part
from tollbridge.types.models import Model

log = logging.getLogger(__name__)

# Waits while the editor does not read.
Report = Callable[[list[wire.Part]], Awaitable[None]]
ReportWait = Callable[[wire.Wait], object]

# Somebody looks at an editor and can decide: a longer wait is an error with the seconds, not a silent delay.
RETRIES = RetryPolicy(longest=15.0)

# After how many seconds without an answer an editor adds a note to the chat. In between, and after the last
# one, only the seconds are updated.
NOTE_SECONDS = (2, 10, 30, 60, 120, 300)
# The seconds of a retry that is too short for a note.
SHORT_RETRY = 1.0
# Why an attempt failed, by the kind of the error.
WAIT_REASONS: dict[Kind, str] = {
    "rate_limited": "The gateway limits the rate of requests.",
    "overloaded": "The gateway is overloaded.",
    "server": "The gateway failed.",
    "network": "The gateway cannot be reached.",
    "timeout": "The gateway did not answer in time.",
    "disconnected": "The connection was lost.",
}

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


class WaitObserver(Observer):
    """Reports why a turn has no output yet: retries, and an answer that does not begin.

    Use it in a `with` statement around the turn, and call `stop` when output arrives.

    Args:
        report: Called once a second while there is something to report.
    """

    def __init__(self, report: ReportWait) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()  # when the last attempt was sent
        self._retry_at: float | None = None
        self._failures = 0
        self._reason = ""
        self._notes = iter(NOTE_SECONDS)
        self._next_note = next(self._notes)
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(self._next_note, self._tick)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def request(self, protocol: str, url: str, headers: Mapping[str, str], body: bytes) -> None:  # noqa: ARG002
        if self._retry_at is None:
            return  # the first attempt: preparing it counts as waiting
        self._sent, self._retry_at = self._loop.time(), None
        self._notes = iter(NOTE_SECONDS)
        self._next_note = next(self._notes)

    def retry(self, error: BridgeError, seconds: float) -> None:
        self._failures += 1
        self._reason = WAIT_REASONS.get(error.kind, "The request failed.")
        self._retry_at = self._loop.time() + seconds
        self._report_retry(seconds, update=seconds < SHORT_RETRY)

    def _tick(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(1.0, self._tick)
        if self._retry_at is not None:
            self._report_retry(max(0.0, self._retry_at - now), update=True)
            return
        waited = now - self._sent
        if waited < NOTE_SECONDS[0] - 0.5:
            return  # the next attempt was sent just now
        is_note = waited >= self._next_note - 0.5
        if is_note:
            self._next_note = next(self._notes, sys.maxsize)
        text = f"{self._reason} No answer yet after {waited:.0f} s."
        self._report(wire.Wait("answer", round(waited), text.strip(), update=not is_note))

    def _report_retry(self, seconds: float, *, update: bool) -> None:
        left = math.ceil(seconds)
        attempt = f"attempt {self._failures + 1} of {RETRIES.attempts}"
        text = f"{self._reason} Trying again in {left} s ({attempt})."
        self._report(wire.Wait("retry", left, text, update=update))


class Handlers:
    """Shared by all requests of an editor. Holds no key: each request brings its own.

    Args:
        settings: The editor's settings.
        store: Where everything is stored. It is not closed.
        estimator: Shared with the thread that answers token counts.
        on_models_changed: Called with the base URL of a gateway whose model list, refreshed in the
            background, differs from the one that was returned.
    """

    def __init__(
        self,
        settings: wire.EditorSettings,
        store: Store | None,
        estimator: HybridTokenEstimator,
        on_models_changed: Callable[[str], object],
    ) -> None:
        self._set_own(settings)
        self._status_bar = StatusBar()
        self._engine = Engine.open(
            editor=editor_settings_layer(settings),
            store=store,
            estimator=estimator,
            on_models_changed=on_models_changed,
            retries=RETRIES,
        )

    async def aclose(self) -> None:
        await self._engine.aclose()

    async def change_settings(self, settings: wire.EditorSettings) -> None:
        self._set_own(settings)
        await self._engine.change_settings(editor_settings_layer(settings))

    def _set_own(self, settings: wire.EditorSettings) -> None:
        """Set what concerns this program and not the engine."""
        self._report_credits = settings.report_credits
        self._image_folder = Path(settings.image_folder) if settings.image_folder else None
        self._embed_images = settings.embed_images

    async def models(self, params: wire.ModelsParams) -> wire.ModelsResult:
        """Return the models for the picker; with `refresh`, a list that cannot be fetched is an error."""
        models = await self._engine.models(_account(params.account), refresh=params.refresh)
        self._warm([model.id for model in models])
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
            count = len(await self._engine.models(_account(account), refresh=True))
        except NotAuthenticated as error:
            if account.api_key:
                return wire.CheckAccountResult(account.base_url, "warning", error.message)
            message = f"{account.base_url} answers and needs an API key."
        else:
            message = f"{account.base_url} has {count} {'model' if count == 1 else 'models'}."
        return wire.CheckAccountResult(account.base_url, "info", message)

    async def chat(self, params: wire.ChatParams, report: Report, report_wait: ReportWait) -> wire.ChatResult:
        """Run one turn. Report its parts as they arrive, then the usage as the last part."""
        account = _account(params.account)
        model = self._engine.find_model(params.model, account)
        decoded = decode_chat(
            params,
            takes_files=model is None or model.capabilities.files,
            efforts=model.efforts if model is not None else (),
        )
        if decoded.dropped:
            dropped = ", ".join(f"{count} × {name}" for name, count in decoded.dropped.items())
            log.info("Not sent to %s: %s.", params.model, dropped)
        images = self._image_writer(decoded.request)
        keyless = msgspec.structs.replace(params.account, api_key=None)
        source = msgspec.structs.replace(params, account=keyless)
        try:
            with WaitObserver(report_wait) as wait:
                async with self._engine.turn(
                    decoded.request, account, observers=(wait,), source=source, over_budget=params.over_budget
                ) as turn:
                    async for parts in turn.parts():
                        wait.stop()
                        if images is not None and any(map(is_image, parts)):
                            await report(await _encode_with_images(parts, params.model, images))
                        else:
                            await report(encode_parts(parts, params.model))
        except ContextTooLong as error:
            self._show_answer(decoded.request, model, None, error.message)
            raise
        result = turn.result
        assert result is not None  # noqa: S101 - a turn without a result has raised
        usage = encode_usage(result.context, result.cost.charge if self._report_credits else None)
        if usage is not None:
            await report([usage])
        answer = wire.ChatResult(
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
            # `lesson` is an older name for the estimator's revision. Lessons of `compat` are something else.
            lesson=self._engine.estimator.revision,
        )
        self._show_answer(decoded.request, model, answer)
        return answer

    def _show_answer(
        self,
        request: ChatRequest,
        model: Model | None,
        result: wire.ChatResult | None,
        warning: str | None = None,
    ) -> None:
        """Add an answer, or the failure of one, to the status bar item."""
        if request.conversation is None:
            self._status_bar.add_background(result.cost if result else None)
            return
        name = model.name if model is not None and model.name else request.model
        window = model.limits.window if model is not None else None
        warning = result.warning if result is not None else warning
        self._status_bar.add(Answer(name, request.conversation, result, window, warning))

    async def usage(self, params: wire.UsageParams) -> wire.UsageResult:
        """Return the usage per model since the start, the accuracy of the estimates, and the costs."""
        tracker = self._engine.usage
        last = self._status_bar.last
        named = params.conversation or (last.conversation if last else None)
        today, conversation, budgets = await self._read_costs(named)
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
            today,
            conversation,
            budgets,
            self._status_bar.format(today, conversation, budgets),
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

    def _image_writer(self, request: ChatRequest) -> ImageWriter | None:
        """Return what writes the images of an answer; `None` if the answer is not shown in a chat."""
        if self._image_folder is None or request.conversation is None:
            return None
        return ImageWriter(self._image_folder, embed=self._embed_images)

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


async def _encode_with_images(parts: Sequence[Part], model: str, writer: ImageWriter) -> list[wire.Part]:
    """Encode the parts of an answer. After each image follows a text that shows it in a chat."""
    encoded = []
    for part in parts:
        encoded += encode_parts((part,), model)
        if isinstance(part, DataPart) and is_image(part):
            try:
                encoded.append(wire.Text(await asyncio.to_thread(writer.write, part.data)))
            except OSError as error:
                log.warning("A generated image could not be saved: %s.", error.strerror)
    return encoded


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


# --- The status bar item of the editor ---


class Answer(msgspec.Struct, frozen=True):
    """The last answer of a conversation. The window is in tokens, and `None` if it is not known."""

    model: str
    conversation: str
    result: wire.ChatResult | None = None
    window: int | None = None
    warning: str | None = None


class StatusBar:
    """The answers of one editor window. Requests without a conversation are made in the background."""

    def __init__(self) -> None:
        self.last: Answer | None = None
        self._background = wire.Spending(0)

    def add(self, answer: Answer) -> None:
        self.last = answer

    def add_background(self, cost: wire.TurnCost | None) -> None:
        """Count a request that belongs to no conversation, such as one for a title."""
        total = self._background.cost
        if cost is not None:
            total = (total or Decimal()) + cost.charge
        self._background = wire.Spending(self._background.requests + 1, total)

    def format(
        self, today: wire.Spending, conversation: wire.Spending | None, budgets: Sequence[wire.BudgetInfo]
    ) -> wire.Status:
        """Return the item. The costs are those of the last answer's conversation."""
        last = self.last
        figures = [] if last is None else [last.model]
        details = []
        if last is not None and (share := _context_share(last)) is not None:
            percent = "<1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"
            figures.append(percent)
            details.append(f"{percent} of the context window")
        text = " ".join(figures) or "Tollbridge"
        if conversation is not None and conversation.cost is not None:
            text += f" · {_format_cost(conversation)}"
            details.append(f"{_format_cost(conversation)} in this conversation")
        rows = [
            *([("this conversation", conversation)] if conversation and conversation.requests else []),
            ("today", today),
            *([("background", self._background)] if self._background.requests else []),
        ]
        costs = [(name, _describe(spending)) for name, spending in rows]
        costs += [
            (each.name, f"{format_dollars(each.spent)} of {format_dollars(each.limit)}") for each in budgets
        ]
        blocks = ["**Tollbridge**", *_describe_answer(last), _format_table("Cost", "", costs)]
        return wire.Status(
            text=text,
            label=", ".join(["Tollbridge" if last is None else f"Tollbridge: {last.model}", *details]),
            tooltip="\n\n".join([*blocks, "Click to show the usage page."]),
            warning=last is not None and last.warning is not None,
        )


def _context_share(answer: Answer) -> float | None:
    """Return the used part of the context window, from 0 to 1; `None` if it is not known."""
    tokens = _context_tokens(answer)
    return tokens / answer.window if tokens is not None and answer.window else None


def _context_tokens(answer: Answer) -> int | None:
    usage = (answer.result.context or answer.result.usage) if answer.result else None
    if usage is None:
        return None
    return usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _describe_answer(answer: Answer | None) -> list[str]:
    if answer is None:
        return ["No answer yet in this window."]
    blocks = [] if answer.warning is None else [f"**{answer.warning}**"]
    result = answer.result
    if result is None:
        return blocks
    if result.cache is not None and result.cache.missed:
        blocks.append(result.cache.text)
    usage, used = result.usage, _context_tokens(answer)
    if usage is None or used is None:
        return [*blocks, f"{answer.model}: the gateway reported no usage."]
    window = f" of {answer.window:,} ({100 * used / answer.window:.1f} %)" if answer.window else ""
    rows = [
        ("context", f"{used:,}{window}"),
        ("input", _format_count(usage.input_tokens)),
        ("cached", _format_count(usage.cached_tokens)),
        ("output", _format_count(usage.output_tokens)),
        ("reasoning", _format_count(usage.reasoning_tokens)),
    ]
    if result.cost is not None:
        rows.append(("cost", format_dollars(result.cost.charge)))
    if result.first_seconds is not None:
        rows.append(("time", f"first token {result.first_seconds:.2f} s, total {result.seconds:.2f} s"))
    return [*blocks, _format_table(answer.model, "last answer", rows)]


def _format_table(name: str, value: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [(name, value), (":--", ":--"), *rows]
    return "\n".join(f"| {left} | {right} |" for left, right in lines)


def _describe(spending: wire.Spending) -> str:
    requests = f"{spending.requests:,} request{'' if spending.requests == 1 else 's'}"
    return requests if spending.cost is None else f"{_format_cost(spending)} ({requests})"


def _format_cost(spending: wire.Spending) -> str:
    """Return a cost, and mark the sum of some requests if the cost of others is not known."""
    return f"{'≥ ' if spending.partial else ''}{format_dollars(spending.cost or Decimal())}"


def _format_count(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"
