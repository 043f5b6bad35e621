"""The examination of a server: its steps in order, and the quirks that they find.

The checks of the connection, the answers and the parameters are here; those that send tools, images, files or
reasoning are in `content_checks`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tollbridge.compat.known_servers import KnownServer, recognize_server
from tollbridge.compat.profiles import apply_findings
from tollbridge.doctor import content_checks
from tollbridge.doctor.session import (
    CLOSE_CONNECTION,
    HELLO,
    Finding,
    Inconclusive,
    ProbeSession,
    describe_error,
    failed,
    find_first_answer,
    passed,
    rejected,
    unknown,
)
from tollbridge.protocols.model_list import read_models
from tollbridge.protocols.openresponses.wire import EVENTS
from tollbridge.types.errors import BridgeError
from tollbridge.types.models import Model
from tollbridge.types.quirks import Quirks
from tollbridge.types.text import Fields, read_json

_CHECK_KEY = "Check your API key (`tollbridge login`, or TOLLBRIDGE_API_KEY)."
_CHECK_URL = "Check the base URL; it usually ends in /v1. Or choose a model with --model."
_CHOOSE_MODEL = "Choose a model with --model."
# Advice if the model list is not available and no model was chosen, by the kind of the error.
_MODEL_LIST_ADVICE = {"authentication": _CHECK_KEY, "permission": _CHECK_KEY, "not_found": _CHECK_URL}
# Errors of the connection; with any other error, the server is reachable.
_CONNECTION_ERRORS = frozenset({"network", "timeout", "disconnected"})
_KEY_ERRORS = frozenset({"authentication", "permission"})


async def check_reach(session: ProbeSession) -> Finding:
    session.models_reply = reply = await session.send("GET", "/models")
    if reply.error is not None and (reply.status is None or reply.error.kind in _CONNECTION_ERRORS):
        return failed(
            describe_error(reply.error), "Check the base URL, the network connection and the proxy settings."
        )
    server = reply.headers.get("server")
    name = f" ({server[:60]})" if server else ""
    return passed(f"Reachable{name}, {reply.seconds * 1000:.0f} ms.")


async def check_tls_and_proxy(session: ProbeSession) -> Finding:
    proxy = session.client.proxy()
    route = f"through the proxy {proxy}" if proxy else "no proxy"
    if urlsplit(session.client.base_url).scheme == "https":
        return passed(f"HTTPS with a trusted certificate, {route}.")
    return passed(f"Plain HTTP, {route}.")


async def check_models(session: ProbeSession) -> Finding:
    """Read the model list, and choose a model if none was given."""
    models, error = [], session.models_reply.error
    if error is None:
        try:
            models = read_models(session.models_reply.body)
        except BridgeError as invalid:
            error = invalid
    chat_models = [model for model in models if model.is_chat_model]
    session.models = tuple(models)
    given_model, session.model = session.model, session.model or _choose_model(chat_models)
    if error is not None or not chat_models:
        problem = describe_error(error) if error is not None else "The model list is empty."
        if session.model:
            return failed(problem, "Specify models by name.")
        kind = error.kind if error is not None else ""
        return failed(problem, _MODEL_LIST_ADVICE.get(kind, _CHOOSE_MODEL))
    count = "1 model" if len(models) == 1 else f"{len(models)} models"
    if given_model and given_model not in [model.id for model in models]:
        return unknown(f"{count}; {given_model} is not in the list.", "Testing it anyway.")
    windows = sum(model.context_window is not None for model in chat_models)
    known_windows = f"context window known for {windows}" if windows else "no context windows listed"
    choice = f"; testing with {session.model}" if session.model and not given_model else ""
    return passed(f"{count}; {known_windows}{choice}.")


async def check_key(session: ProbeSession) -> Finding:
    """Get the first answer. The model list is often public, so only an answer shows that a key is valid."""
    if session.model is None:
        reply = session.models_reply
        if reply.error is None or reply.error.kind not in _KEY_ERRORS:
            return unknown("Could not be tested without a model.")
    else:
        session.first_answer = await find_first_answer(session)
        reply = session.first_answer.reply
    if reply.error is None:
        return passed("The key is accepted." if session.client.has_key else "No key required.")
    if reply.error.kind in _KEY_ERRORS:
        problem = "The key was rejected" if session.client.has_key else "A key is required"
        return rejected(problem, reply.error, _CHECK_KEY)
    if reply.error.kind == "not_found":
        remedy = "Choose a model of the gateway with --model; `tollbridge models` lists them."
        return unknown(f"Could not be determined: {describe_error(reply.error)}", remedy)
    raise Inconclusive(reply.error)


def _choose_model(chat_models: list[Model]) -> str | None:
    """Return the cheapest model that supports tools if prices are listed, else the first."""
    candidates = [model for model in chat_models if model.capabilities.tools] or chat_models
    priced = [model for model in candidates if model.prices and model.prices.output is not None]
    cheapest = min(priced, key=lambda model: (model.prices and model.prices.output) or 0, default=None)
    return cheapest.id if cheapest else candidates[0].id if candidates else None


async def check_text(session: ProbeSession) -> Finding:
    answer = session.first_answer
    if answer is None:
        return failed("No model available.", _CHOOSE_MODEL)
    reply, rejection = answer.reply, answer.rejection
    if reply.error is not None:
        remedy = _CHOOSE_MODEL if reply.error.kind == "not_found" else "Chat will not work."
        return rejected(f"{session.model} did not respond", reply.error, remedy)
    learned = {"text_as": "string", "without": frozenset(), **answer.quirks}
    if rejection is not None:
        form = ["with text as a list of parts"] if answer.quirks.get("text_as") == "array" else []
        form += [f"without `{field}`" for field in sorted(answer.quirks.get("without", ()))]
        problem = f"{session.model} responds only {' and '.join(form)}"
        return rejected(problem, rejection, "Tollbridge does that.", **learned)
    empty = "" if reply.answer.text else ", with an empty answer (reasoning may have used the token limit)"
    return passed(f"{session.model} responded in {reply.seconds:.1f} s{empty}.", **learned)


async def check_stream(session: ProbeSession) -> Finding:
    frames, events = session.first_reply.frames(), session.first_reply.wire_events()
    if not events:
        return failed("Streaming is not supported.", "Answers appear when complete.")
    deviations = [name for name, present in _find_deviations(frames, events).items() if present]
    if deviations:
        return passed(f"{len(events)} events; non-standard but handled: {', '.join(deviations)}.")
    return passed(f"{len(events)} events, framed as specified.")


def _find_deviations(frames: list[tuple[bytes, bytes]], events: list[dict[str, Any]]) -> dict[str, bool]:
    """Return each deviation from the specification, and whether the stream has it."""
    all_numbers = [event.get("sequence_number") for event in events]
    numbers = [number for number in all_numbers if isinstance(number, int)]
    deltas = [event for event in events if str(event.get("type", "")).endswith(".delta")]
    unknown_types = sorted({str(event.get("type")) for event in events} - set(EVENTS))
    return {
        "no event: lines": not any(name for name, _ in frames),
        "no [DONE]": not any(data.strip() == b"[DONE]" for _, data in frames),
        "no sequence numbers": not numbers,
        "some sequence numbers missing": bool(numbers) and len(numbers) < len(all_numbers),
        "sequence numbers out of order": numbers != sorted(set(numbers)),
        "no output_index": any("output_index" not in event for event in deltas),
        f"unknown events ({', '.join(unknown_types)[:80]})": bool(unknown_types),
    }


async def check_usage(session: ProbeSession) -> Finding:
    reply = session.first_reply
    finished = reply.answer.finished
    usage = finished.usage if finished else None
    remedy = "Usage will be estimated."
    if usage is None or not usage.known:
        ends = [event for event in reply.wire_events() if EVENTS.get(str(event.get("type"))) == "ended"]
        responses = [event["response"] for event in ends if isinstance(event["response"], dict)]
        if any(isinstance(response.get("usage"), dict) for response in responses):
            return failed("Usage is reported as zero.", remedy)
        return failed("Usage is not reported.", remedy)
    details = {"cached tokens": usage.cached_tokens, "reasoning tokens": usage.reasoning_tokens}
    missing = [name for name, tokens in details.items() if tokens is None]
    counts = f"{usage.input_tokens} input tokens, {usage.output_tokens} output tokens"
    if missing:
        return passed(f"{counts}; {' and '.join(missing)} not reported.")
    return passed(f"{counts}, with details.")


async def check_input_tokens(session: ProbeSession) -> Finding:
    reply = await session.count(session.build_request(HELLO))
    remedy = "Tokens will be estimated."
    if reply.rejection is not None:
        problem = "Token counting endpoint unavailable"
        return rejected(problem, reply.rejection, remedy, input_tokens=False)
    if reply.error is not None:
        raise Inconclusive(reply.error)
    try:
        tokens = Fields(read_json(reply.body)).number("input_tokens")
    except ValueError:
        tokens = None
    if tokens is None:
        return failed("Invalid token count.", remedy, input_tokens=False)
    return passed(
        f"Token counting endpoint available ({tokens} tokens for a small request).", input_tokens=True
    )


_PARAMETERS: dict[str, Any] = {"temperature": 0.5, "metadata": {"purpose": "doctor"}}
_LONG_ANSWER = "Count slowly from one to two hundred, one number a line: a long list, and nothing else."


async def check_parameters(session: ProbeSession) -> Finding:
    rejections: dict[str, str] = {}
    for name, value in _PARAMETERS.items():
        reply = await session.probe(session.build_request(HELLO, **{name: value}))
        if reply.rejection is not None:
            rejections[name] = describe_error(reply.rejection)
    if not rejections:
        return passed(f"{' and '.join(_PARAMETERS)} are accepted.")
    return failed(
        "; ".join(f"{name} is rejected: {message}" for name, message in rejections.items()),
        "Rejected parameters are not sent to this model.",
        without=session.without(*rejections),
    )


async def check_cancellation(session: ProbeSession) -> Finding:
    """Close the connection during an answer, and check that the next request succeeds."""
    try:
        async with asyncio.timeout(session.limits.answer):
            received = await _cancel_answer(session)
    except BridgeError as error:
        raise Inconclusive(error) from error
    except TimeoutError:
        return unknown("Could not test cancellation: no response in time.")
    if not received:
        return unknown("Could not test cancellation: the response is empty.")
    started = time.monotonic()
    reply = await session.ask(session.build_request(HELLO))
    if reply.error is not None:
        problem = "After a cancellation, the next request failed"
        return rejected(problem, reply.error, "Cancelling may delay the next request.")
    return passed(f"Cancellation works; the next request succeeded after {time.monotonic() - started:.1f} s.")


async def _cancel_answer(session: ProbeSession) -> int:
    """Return the number of bytes received before the connection was closed."""
    body = session.body(session.build_request(_LONG_ANSWER, max_output_tokens=400))
    session.requests += 1
    async with (
        session.record(),
        session.client.send("POST", "/responses", body, headers=CLOSE_CONNECTION) as response,
        aclosing(response.chunks()) as chunks,
    ):
        async for chunk in chunks:
            return len(chunk)
    return 0


Check = Callable[[ProbeSession], Awaitable[Finding]]

# By name, in order: the title and the check. Checks use the findings of earlier ones.
STEPS: dict[str, tuple[str, Check]] = {
    "reach": ("Reach", check_reach),
    "tls": ("TLS and proxy", check_tls_and_proxy),
    "models": ("Models", check_models),
    "key": ("Key", check_key),
    "text": ("Text", check_text),
    "stream": ("Stream", check_stream),
    "usage": ("Usage", check_usage),
    "arrays": ("Lists of parts", content_checks.check_arrays),
    "system": ("System prompt", content_checks.check_system),
    "tools": ("Tools", content_checks.check_tools),
    "history": ("Calls in the history", content_checks.check_history),
    "parallel": ("Parallel calls", content_checks.check_parallel_calls),
    "images": ("Images", content_checks.check_images),
    "results": ("Images in results", content_checks.check_rich_results),
    "files": ("Files", content_checks.check_files),
    "reasoning": ("Reasoning", content_checks.check_reasoning),
    "encrypted": ("Encrypted reasoning", content_checks.check_encrypted_reasoning),
    "replay": ("Reasoning sent back", content_checks.check_reasoning_replay),
    "parameters": ("Parameters", check_parameters),
    "tokens": ("Token count", check_input_tokens),
    "cancel": ("Cancellation", check_cancellation),
}
# If one of these fails, the remaining steps are skipped, for this reason.
_REQUIRED_STEPS = {"reach": "the server does not respond", "text": "the model does not respond"}
# The number of requests to a server without quirks; others receive a few more.
TYPICAL_REQUESTS = 20


class Step(msgspec.Struct, frozen=True):
    """One line of the checklist. A step without a finding is still running.

    A step is skipped if one that it depends on failed.
    """

    name: str
    title: str
    finding: Finding | None = None
    seconds: float = 0.0
    skipped: bool = False


class Examination(ProbeSession):
    """Examines one server with one model; by default, one is chosen from the server's list."""

    steps: tuple[Step, ...] = ()  # the finished ones
    _learned: Mapping[str, Any] = {}

    async def run(self) -> AsyncIterator[Step]:
        """Run all steps. Yield each step twice: when it starts, and with its finding when it ends."""
        skip_reason = ""
        for name, (title, check) in STEPS.items():
            yield Step(name, title)
            started = time.monotonic()
            try:
                finding = unknown(f"Not tested: {skip_reason}.") if skip_reason else await check(self)
            except Inconclusive as error:
                finding = error.finding
            self._learned = {**self._learned, **finding.learned}
            self.measured = apply_findings(self.measured, finding.learned)
            step = Step(name, title, finding, time.monotonic() - started, skipped=bool(skip_reason))
            self.steps += (step,)
            yield step
            can_continue = name == "text" and self.can_chat
            if name in _REQUIRED_STEPS and finding.verdict != "well" and not can_continue:
                skip_reason = _REQUIRED_STEPS[name]

    @property
    def can_chat(self) -> bool:
        """Whether the model responds, in any form of the request."""
        return self.first_answer is not None and self.first_answer.reply.error is None

    @property
    def server(self) -> KnownServer | None:
        """The known server that this is, or `None`: by its responses and model list, or by its address."""
        headers = {**self.models_reply.headers, **self.first_reply.headers}
        owners = {model.owner for model in self.models if model.owner}
        return recognize_server(self.client.base_url, headers, owners)

    @property
    def quirks(self) -> Quirks:
        """The measured quirks, and the shipped ones of the known server for all others."""
        server = self.server
        return apply_findings(server.quirks if server else Quirks(), self._learned)
