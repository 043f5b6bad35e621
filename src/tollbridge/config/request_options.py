"""What the settings add to a request: parameters and provider options, where the editor set none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tollbridge.config.schema import PRESETS, Settings, about_preset, matching
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import ChatRequest
from tollbridge.types.models import identify
from tollbridge.types.urls import VERCEL_HOST

Json = dict[str, Any]
PROVIDER_OPTIONS = "providerOptions"
# Anthropic's context editing. Thinking comes first and only where the model thinks: it is refused otherwise.
CLEAR_THINKING: Json = {"type": "clear_thinking_20251015"}
CLEAR_TOOL_USES: Json = {"type": "clear_tool_uses_20250919"}


def apply_settings(request: ChatRequest, settings: Settings, base_url: str) -> ChatRequest:
    """The request as the settings want it. What the editor itself asked for stays as it is."""
    preset, extra = _presets(settings, request.model)
    missing = {name: value for name, value in preset.items() if getattr(request, name) is None}
    request = msgspec.structs.replace(request, **missing)
    given = dict(request.extra or {})
    extra = {**extra, **given}
    options = merge_options(
        provider_options(request, settings, base_url), _objects(given.get(PROVIDER_OPTIONS))
    )
    if options:
        extra[PROVIDER_OPTIONS] = options
    return msgspec.structs.replace(request, extra=extra or None)


def provider_options(request: ChatRequest, settings: Settings, base_url: str) -> Json:
    """The provider options for a request: the defaults, then each pattern's, the closest last."""
    options: Json = {}
    if settings.context_management and _edits_context(request.model, base_url):
        thinks = request.reasoning_effort not in (None, "none")
        edits = [*([CLEAR_THINKING] if thinks else []), CLEAR_TOOL_USES]
        options = {"anthropic": {"contextManagement": {"edits": edits}}}
    for model in matching(settings.models, request.model):
        options = merge_options(options, model.provider_options)
    return options


def merge_options(under: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    """Objects are joined, all else replaced."""
    result: Json = dict(under)
    for name, value in over.items():
        below = result.get(name)
        joins = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[name] = merge_options(below, value) if joins else value  # type: ignore[arg-type]
    return result


def _edits_context(model: str, base_url: str) -> bool:
    """Only Vercel's gateway is known to hand the option on, and only Claude takes it."""
    made = identify(model)
    is_claude = made.creator == "anthropic" or made.family.startswith("claude")
    return is_claude and urlsplit(base_url).hostname == VERCEL_HOST


def _presets(settings: Settings, model: str) -> tuple[Json, Json]:
    """Parameters by their names here, and those that are sent as they are given."""
    given: Json = {}
    for found in matching(settings.models, model):
        given |= found.parameters
    for name, value in given.items():
        complaint = about_preset(name, value)
        if complaint:
            raise RequestError(f"The parameter {name} for {model}: {complaint}.")
    known = {name: value for name, value in given.items() if name in PRESETS}
    return known, {name: value for name, value in given.items() if name not in PRESETS}


def _objects(value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RequestError(f"{PROVIDER_OPTIONS} must be a JSON object.")
    return value
