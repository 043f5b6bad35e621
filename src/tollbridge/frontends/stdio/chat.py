"""Answer the editor's chat requests: one turn of the engine for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from tollbridge.answer import Answer
from tollbridge.engine import Engine
from tollbridge.front_end_engine import FrontEndEngine
from tollbridge.frontends.stdio import wire
from tollbridge.frontends.stdio.editor_settings import convert_account
from tollbridge.frontends.stdio.output import Output
from tollbridge.frontends.stdio.status_bar import ShownAnswer, StatusBar
from tollbridge.frontends.stdio.waiting import WaitObserver
from tollbridge.frontends.vscode.answers import encode_parts, encode_usage
from tollbridge.frontends.vscode.images import ImageWriter, is_image
from tollbridge.frontends.vscode.requests import DecodedChat, decode_chat
from tollbridge.frontends.vscode.wire import Part as WirePart
from tollbridge.frontends.vscode.wire import Text
from tollbridge.protocols.jsonrpc import Id
from tollbridge.types.errors import ContextTooLong
from tollbridge.types.messages import ChatRequest, Part
from tollbridge.types.models import Model

log = logging.getLogger(__name__)


class ChatHandler:
    """Runs the turns of one editor. Its settings can be replaced between two requests."""

    def __init__(
        self, engine: Engine, output: Output, status_bar: StatusBar, settings: wire.EditorSettings
    ) -> None:
        self.settings = settings
        self._engine = engine
        self._front_end = FrontEndEngine(engine)
        self._output = output
        self._status_bar = status_bar

    async def answer(self, params: wire.ChatParams, call_id: Id) -> wire.ChatResult:
        """Run one turn. Report its parts as they arrive, then the usage as the last part."""
        self._output.turns += 1
        try:
            return await self._answer(params, call_id)
        finally:
            self._output.turns -= 1

    async def _answer(self, params: wire.ChatParams, call_id: Id) -> wire.ChatResult:
        token = call_id if params.progress_token is None else params.progress_token
        account = convert_account(params.account)
        model = self._front_end.find_model(params.model, account)
        chat = decode_chat(
            params,
            takes_files=model is None or model.capabilities.files,
            efforts=model.efforts if model is not None else (),
        )
        if chat.dropped:
            dropped = ", ".join(f"{count} × {name}" for name, count in chat.dropped.items())
            log.info("Not sent to %s: %s.", params.model, dropped)
        # The images of an answer are written if the answer is shown in a chat.
        folder = self.settings.image_folder if chat.request.conversation is not None else None
        images = ImageWriter(Path(folder), embed=self.settings.embed_images) if folder else None
        keyless = msgspec.structs.replace(params.account, api_key=None)
        source = msgspec.structs.replace(params, account=keyless)
        try:
            with WaitObserver(partial(self._output.report_wait, token)) as wait:
                async with self._engine.turn(
                    chat.request, account, observers=(wait,), source=source, over_budget=params.over_budget
                ) as turn:
                    async for parts in turn.parts():
                        wait.stop()
                        encoded = await _encode(parts, params.model, images)
                        await self._output.report_parts(token, encoded)
        except ContextTooLong as error:
            self._show(chat.request, model, None, error.message)
            raise
        result = turn.result
        usage = encode_usage(result.context, result.cost.charge if self.settings.report_credits else None)
        if usage is not None:
            await self._output.report_parts(token, [usage])
        answer = self._encode_result(result, chat)
        self._show(chat.request, model, answer, answer.warning)
        return answer

    def _encode_result(self, result: Answer, chat: DecodedChat) -> wire.ChatResult:
        return wire.ChatResult(
            finish_reason=result.finish_reason,
            usage=wire.TokenUsage.of(result.usage),
            context=wire.TokenUsage.of(result.context),
            cost=wire.TurnCost.of(result.cost),
            response_id=result.response_id,
            dropped=chat.dropped,
            changes=result.changes,
            counts=result.counts,
            warning=result.warning,
            cache=wire.CacheInfo.of(result.cache),
            first_seconds=result.first,
            seconds=result.duration,
            counts_revision=self._engine.estimator.revision,
        )

    def _show(
        self, request: ChatRequest, model: Model | None, result: wire.ChatResult | None, warning: str | None
    ) -> None:
        """Add an answer, or the failure of one, to the status bar item."""
        if request.conversation is None:
            self._status_bar.add_background(result.cost if result else None)
            return
        name = model.name if model is not None and model.name else request.model
        window = model.limits.window if model is not None else None
        self._status_bar.last = ShownAnswer(name, request.conversation, result, window, warning)


async def _encode(parts: Sequence[Part], model: str, images: ImageWriter | None) -> list[WirePart]:
    """Encode the parts of an answer. After each image follows a text that shows it in a chat."""
    if images is None or not any(map(is_image, parts)):
        return encode_parts(parts, model)
    encoded: list[WirePart] = []
    for part in parts:
        encoded += encode_parts((part,), model)
        if is_image(part):
            try:
                encoded.append(Text(await asyncio.to_thread(images.write, part.data)))
            except OSError as error:
                log.warning("A generated image could not be saved: %s.", error.strerror)
    return encoded
