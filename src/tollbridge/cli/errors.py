"""Errors as a person reads them: one sentence that says what happened, one that says what to do."""

from __future__ import annotations

import sys
from typing import Literal

import click

from tollbridge.cli.terminal import folded, one_line
from tollbridge.config.loading import SettingsError
from tollbridge.types.errors import BridgeError, Kind, RequestError

# How the gateway was asked; what helps depends on it.
ConnectionKind = Literal["openresponses", "ai-sdk", "ui-stream", "local"]

ADVICE: dict[Kind, str] = {
    "authentication": "Set TOLLBRIDGE_API_KEY (or AI_GATEWAY_API_KEY) to a key that this gateway accepts.",
    "permission": "Ask for access to this model, or choose another: tollbridge models.",
    "not_found": "Check --base-url and --model; this lists what there is: tollbridge models.",
    "rate_limited": "Try again later, or choose another model.",
    "context_too_long": "Say less, begin anew, or choose a model with a larger window: tollbridge models.",
    "content_filtered": "Put it differently, or choose another model.",
    "invalid_request": "Check the options and the model: not every model takes images or reasoning.",
    "overloaded": "Try again in a while, or choose another model.",
    "server": "Try again; if it goes on, the gateway's operator must look at it.",
    "network": "Check --base-url, the network connection and the proxy settings.",
    "timeout": "Try again; if it goes on, the gateway is too slow or out of reach.",
    "disconnected": "Ask again: what was said before the connection broke is all there is.",
    "protocol": "Check that --base-url is an OpenResponses server; its address usually ends in /v1.",
}
# Where something else helps than with a gateway that speaks OpenResponses.
DEFAULT_ADVICE: dict[ConnectionKind, dict[Kind, str]] = {
    "openresponses": {},
    "ai-sdk": {
        "protocol": "Check that --base-url speaks the AI SDK's gateway protocol, or leave out --backend.",
    },
    "local": {
        "context_too_long": "Say less, begin anew, or serve a larger window: tollbridge local --context N.",
        "network": "Try again; if it goes on, start it by itself to see why: tollbridge local.",
        "not_found": "Leave out --model: the model on this machine is the only one there.",
        "rate_limited": "Try again later.",
        "overloaded": "Try again in a while.",
        "protocol": "Try again; if it goes on, start it by itself to see why: tollbridge local.",
        "server": "Try again; if it goes on, start it by itself to see why: tollbridge local.",
        "timeout": "Try again; if it goes on, this machine is too slow for it.",
    },
    "ui-stream": {
        "authentication": "Set TOLLBRIDGE_API_KEY to a key that this endpoint accepts; no other is sent.",
        "permission": "Ask whoever runs the endpoint for access.",
        "not_found": "Check the address given with --ui-stream.",
        "rate_limited": "Try again later.",
        "context_too_long": "Say less, or begin anew.",
        "content_filtered": "Put it differently.",
        "invalid_request": "Check the address and the options: not every endpoint takes images.",
        "overloaded": "Try again in a while.",
        "server": "Try again; if it goes on, whoever runs the endpoint must look at it.",
        "network": "Check --ui-stream, the network connection and the proxy settings.",
        "timeout": "Try again; if it goes on, the endpoint is too slow or out of reach.",
        "protocol": "Check that --ui-stream names an endpoint that answers with an AI SDK UI message stream.",
    },
}


class ExplainedError(click.ClickException):
    """An error whose way is known, explained already."""

    def __init__(self, error: BridgeError, way: ConnectionKind) -> None:
        super().__init__(explain(error, way))

    def show(self, file: object = None) -> None:  # noqa: ARG002 (the signature is click's)
        click.echo(folded(f"Error: {self.message}", sys.stderr), err=True)


def explain(error: BridgeError, way: ConnectionKind = "openresponses") -> str:
    """The error in two sentences, safe to print on a terminal."""
    message = one_line(error.message) or f"The gateway failed ({error.kind})"
    if message[-1] not in ".!?":
        message += "."
    facts = [f"HTTP {error.status}"] if error.status is not None and str(error.status) not in message else []
    facts += [f"request {one_line(error.request_id)}"] if error.request_id else []
    told = f"{message} [{', '.join(facts)}]" if facts else message
    return f"{told} {_advice(error, way)}".rstrip()


def print_error(error: BridgeError, way: ConnectionKind = "openresponses") -> None:
    """Say it on standard error."""
    ExplainedError(error, way).show()


def _advice(error: BridgeError, way: ConnectionKind) -> str:
    if error.advice is not None:
        return error.advice
    if isinstance(error, SettingsError):
        return "Correct it there; `tollbridge config` shows what is in force."
    if isinstance(error, RequestError):
        return "Check what was given: --help says what each option takes."
    if error.retry_after is not None and error.transient:
        return f"Try again in {error.retry_after:.0f} s."
    return DEFAULT_ADVICE[way].get(error.kind) or ADVICE[error.kind]
