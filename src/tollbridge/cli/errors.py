"""Error messages for the terminal: what failed, then what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click

from tollbridge.cli.terminal import one_line, wrap_line
from tollbridge.config.errors import SettingsError
from tollbridge.protocols import DEFAULT_BACKEND, find_protocol
from tollbridge.types.errors import BridgeError, Kind, RequestError

# The advice for each kind of error. That of a protocol (`Protocol.advice`) takes precedence.
ADVICE: dict[Kind, str] = {
    "authentication": "Check the API key: run `tollbridge login`, or set TOLLBRIDGE_API_KEY or "
    "AI_GATEWAY_API_KEY.",
    "permission": "Request access to this model, or choose another one; `tollbridge models` lists them.",
    "not_found": "Check --base-url and --model. Run `tollbridge models` to list models.",
    "rate_limited": "Try again later, or choose another model.",
    "budget_exceeded": "Send it anyway with --over-budget (in a chat: /over-budget), or change the budget; "
    "`tollbridge budget` shows its source.",
    "context_too_long": "Shorten the prompt, start a new conversation, or use a model with a larger context "
    "window. Run `tollbridge models` to list models.",
    "content_filtered": "Rephrase the prompt or try another model.",
    "invalid_request": "Check the prompt and the options; the model may not support one of them.",
    "overloaded": "Try again later, or choose another model.",
    "server": "Try again. If it keeps failing, contact the gateway's operator.",
    "network": "Check --base-url, the network connection and the proxy settings.",
    "timeout": "Try again. If it keeps failing, the gateway may be slow or unreachable.",
    "disconnected": "Try again. Any output above is incomplete.",
}
# The advice that differs from ADVICE if the model list was requested.
LIST_ADVICE: dict[Kind, str] = {
    "permission": "Check the API key: it may not be allowed to list models.",
    "not_found": "Check --base-url; it usually ends in /v1.",
    "invalid_request": "Check --base-url and --backend.",
}
# The advice for "not_found" if the base URL of a protocol usually ends in /v1, and this one does not.
_VERSION_ADVICE = (
    "Check --base-url, which usually ends in /v1, and --model. Run `tollbridge models` to list models."
)
# The command in the advice to which the options of the failed command are added.
_LIST_COMMAND = "`tollbridge models`"
_RUN_LOCAL_MODEL = "Try again. If it keeps failing, run `tollbridge local` to see the error."
# The advice that differs for the local model.
LOCAL_ADVICE: dict[Kind, str] = {
    "context_too_long": "Shorten the prompt, start a new conversation, or serve the model with a larger "
    "context: `tollbridge local --context N`.",
    "network": _RUN_LOCAL_MODEL,
    "not_found": "Remove --model; only the built-in local model is available.",
    "rate_limited": "Try again later.",
    "overloaded": "Try again later.",
    "protocol": _RUN_LOCAL_MODEL,
    "server": _RUN_LOCAL_MODEL,
    "timeout": "Try again. If it keeps failing, this computer may be too slow for the model.",
}


class ExplainedError(click.ClickException):
    """An error with the text of `explain`. Click prints it and exits with code 1."""

    def show(self, file: object = None) -> None:  # noqa: ARG002 (the signature is click's)
        click.echo(wrap_line(f"Error: {self.message}", sys.stderr), err=True)


def print_error(error: BridgeError) -> None:
    """Print the error and the advice on standard error."""
    ExplainedError(explain(error)).show()


def explain(
    error: BridgeError,
    protocol: str = DEFAULT_BACKEND,
    command_advice: Mapping[Kind, str] = {},
    *,
    base_url: str = "",
    arguments: str = "",
) -> str:
    """Return the error's message, HTTP status, request id and advice on one printable line.

    Args:
        command_advice: The advice of the command, for the kinds of errors where it differs.
        arguments: The options that select the gateway, for the commands in the advice.
    """
    message = one_line(error.message) or f"The gateway failed ({error.kind})"
    if message[-1] not in ".!?":
        message += "."
    details = (
        [f"HTTP {error.status}"] if error.status is not None and str(error.status) not in message else []
    )
    details += [f"request {one_line(error.request_id)}"] if error.request_id else []
    if details:
        message = f"{message} [{', '.join(details)}]"
    descriptor = find_protocol(protocol)
    advice = _advice(error, (command_advice, descriptor.advice, ADVICE))
    if descriptor.is_versioned and base_url and not base_url.rstrip("/").endswith("/v1"):
        advice = advice.replace(ADVICE["not_found"], _VERSION_ADVICE)
    advice = advice.replace(_LIST_COMMAND, f"`tollbridge models{arguments}`")
    return f"{message} {advice}".rstrip()


def _advice(error: BridgeError, tables: Sequence[Mapping[Kind, str]]) -> str:
    if error.advice is not None:
        return error.advice
    if isinstance(error, SettingsError):  # its message says where the setting is
        return "Correct this setting."
    if isinstance(error, RequestError):
        return "See --help for the options."
    if error.retry_after is not None and error.transient:
        return f"Try again in {error.retry_after:.0f} s."
    return next(table[error.kind] for table in tables if error.kind in table)
