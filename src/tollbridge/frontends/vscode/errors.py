"""Convert errors to messages and facts for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollbridge.types.errors import BridgeError, BudgetExceeded, ContextTooLong, Kind

# What the user can do, by the kind of the error. It is appended to the message of the gateway.
ADVICE: dict[Kind, str] = {
    "authentication": "Check the account's API key.",
    "permission": "The API key does not have access to this model.",
    "not_found": "Choose a model of the gateway's current list.",
    "rate_limited": "Try again later.",
    "budget_exceeded": "Change the budget with `tollbridge budget set`, or allow this request.",
    "context_too_long": "Start a new chat or remove attachments.",
    "overloaded": "Try again in a moment.",
    "network": "Check the account's base URL and the network.",
    "timeout": "Try again, or increase the timeouts.",
    "disconnected": "The partial answer was kept. Try again.",
}

# The same with the names of the extension's commands and settings.
VSCODE_ADVICE: dict[Kind, str] = {
    **ADVICE,
    "authentication": "Check the account's API key with “Tollbridge: Set Up”.",
    "not_found": "Run “Tollbridge: Refresh Models” to update the model list.",
    "budget_exceeded": "Choose “Allow Over Budget Today” to send it, or change tollbridge.budgets.",
    "timeout": "Try again, or increase tollbridge.timeouts.",
}


def encode_error(
    error: BridgeError, advice_by_kind: Mapping[Kind, str] = VSCODE_ADVICE
) -> tuple[str, dict[str, Any]]:
    """Return the message for the user, and the `data` of the JSON-RPC error."""
    data = {
        "kind": error.kind,
        "status": error.status,
        "code": error.code,
        "retryAfter": error.retry_after,
        "requestId": error.request_id,
    }
    if isinstance(error, ContextTooLong):
        data |= {"tokens": error.tokens, "limit": error.limit}
    if isinstance(error, BudgetExceeded):
        figures = {name: getattr(error, name) for name in ("limit", "spent", "reserved", "estimate")}
        data |= {name: None if value is None else f"{value:f}" for name, value in figures.items()}
        data["budget"] = error.budget
    message = error.message.strip() or "The gateway gave no reason."
    message = message if message[-1] in ".!?”" else f"{message}."
    advice = advice_by_kind.get(error.kind, "") if error.advice is None else error.advice
    if error.kind == "rate_limited" and error.retry_after:
        advice = f"Try again in {error.retry_after:.0f} s."
    return f"{message} {advice}".strip(), {name: value for name, value in data.items() if value is not None}
