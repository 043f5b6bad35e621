"""Add the parameters and provider options of the settings to a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tollbridge.config.schema import REQUEST_PARAMETERS, Settings, matching, parameter_error
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import identify
from tollbridge.types.urls import VERCEL_HOST

Json = dict[str, Any]
PROVIDER_OPTIONS = "providerOptions"
# Anthropic's context editing. Anthropic requires `clear_thinking` to be the first edit, and answers 400 if it
# is sent while thinking is off.
CLEAR_THINKING: Json = {"type": "clear_thinking_20251015"}
CLEAR_TOOL_USES: Json = {"type": "clear_tool_uses_20250919"}


def apply_settings(request: ChatRequest, settings: Settings, base_url: str) -> ChatRequest:
    """Return the request with the settings for its model added. Values that the editor set are kept.

    Raises:
        RequestError: If a parameter of the settings or the editor's `providerOptions` are not valid.
    """
    fields, extra = _model_parameters(settings, request.model)
    missing = {name: value for name, value in fields.items() if getattr(request, name) is None}
    request = msgspec.structs.replace(request, **missing)
    editor_extra = dict(request.extra or {})
    extra = {**extra, **editor_extra}
    editor_options = _require_object(editor_extra.get(PROVIDER_OPTIONS))
    options = merge_options(provider_options(request, settings, base_url), editor_options)
    if options:
        extra[PROVIDER_OPTIONS] = options
    return msgspec.structs.replace(request, extra=extra or None)


def provider_options(request: ChatRequest, settings: Settings, base_url: str) -> Json:
    """Return the provider options for a request.

    These are the defaults, overridden by each matching pattern of the settings, the most specific last.
    """
    options: Json = {}
    if settings.context_management and _supports_context_editing(request.model, base_url):
        thinking = request.reasoning_effort not in (None, "none")
        edits = [*([CLEAR_THINKING] if thinking else []), CLEAR_TOOL_USES]
        options = {"anthropic": {"contextManagement": {"edits": edits}}}
    for model in matching(settings.models, request.model):
        options = merge_options(options, model.provider_options)
    return options


def merge_options(base: Mapping[str, Any], override: Mapping[str, Any]) -> Json:
    """Merge two JSON objects recursively. Values other than objects are replaced."""
    merged: Json = dict(base)
    for name, value in override.items():
        base_value = merged.get(name)
        if isinstance(value, Mapping) and isinstance(base_value, Mapping):
            merged[name] = merge_options(base_value, value)
        else:
            merged[name] = value
    return merged


def _supports_context_editing(model: str, base_url: str) -> bool:
    """Only Vercel AI Gateway is known to pass the option on, and only Claude models accept it."""
    identity = identify(model)
    is_claude = identity.creator == "anthropic" or identity.family.startswith("claude")
    return is_claude and urlsplit(base_url).hostname == VERCEL_HOST


def _model_parameters(settings: Settings, model: str) -> tuple[Json, Json]:
    """Return the parameters for a model: fields of `ChatRequest`, and those that are sent unchanged."""
    parameters: Json = {}
    for model_settings in matching(settings.models, model):
        parameters |= model_settings.parameters
    for name, value in parameters.items():
        error = parameter_error(name, value)
        if error:
            raise RequestError(f"Invalid parameter {name} for {model}: {error}.")
    fields = {name: value for name, value in parameters.items() if name in REQUEST_PARAMETERS}
    return fields, {name: value for name, value in parameters.items() if name not in REQUEST_PARAMETERS}


def _require_object(value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RequestError(f"{PROVIDER_OPTIONS} must be a JSON object, not {type(value).__name__}.")
    return value
