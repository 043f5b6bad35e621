"""The estimator of a sidecar: asked by the thread that answers while the engine's thread teaches it."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from threading import RLock

from tollbridge.core.messages import ChatRequest, Message, Part
from tollbridge.core.usage import Usage
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.tokens import Accuracy, EstimationResult


class SharedEstimator(HybridTokenEstimator):
    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self._turn = RLock()
        super().__init__(path)

    @property
    def lesson(self) -> int:
        """Another number whenever counts that were given may no longer be right."""
        with self._turn:
            return self._ledger.lesson

    def estimate_text(self, model: str, text: str) -> int:
        with self._turn:
            return super().estimate_text(model, text)

    def estimate_message(self, model: str, message: Message) -> int:
        with self._turn:
            return super().estimate_message(model, message)

    def estimate_request(self, request: ChatRequest) -> EstimationResult:
        with self._turn:
            return super().estimate_request(request)

    def calibrate_request(self, request: ChatRequest, usage: Usage, answer: Iterable[Part] = ()) -> bool:
        with self._turn:
            return super().calibrate_request(request, usage, answer)

    def counted(self, request: ChatRequest, tokens: int) -> bool:
        with self._turn:
            return super().counted(request, tokens)

    def accuracy(self) -> list[Accuracy]:
        with self._turn:
            return super().accuracy()
