"""Request parameters in the settings: which are valid, and what they add to a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tollbridge.config.errors import describe_mismatch
from tollbridge.config.patterns import matching
from tollbridge.config.schema import Settings
from tollbridge.policy.clearing import choose_edits
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import ChatRequest

Json = dict[str, Any]
PROVIDER_OPTIONS = "providerOptions"
# The parameters that are fields of `ChatRequest`; all others are sent unchanged.
REQUEST_PARAMETERS = frozenset(
    "max_output_tokens metadata parallel_tool_calls reasoning_effort reasoning_summary temperature "
    "top_p".split()
)
_EDITOR_PARAMETERS = frozenset({"model", "messages", "input", "tools", "stream"})
_REQUEST_TYPES = {field.name: field.type for field in msgspec.structs.fields(ChatRequest)}


def parameter_error(name: str, value: object) -> str | None:
    """Return why a request parameter is not valid in the settings, or `None` if it is valid."""
    if name in _EDITOR_PARAMETERS:
        return "cannot be set here; the editor controls it"
    if name in REQUEST_PARAMETERS:
        try:
            msgspec.convert(value, _REQUEST_TYPES[name])
        except msgspec.ValidationError as error:
            return describe_mismatch(str(error))
    return None


def apply_settings(request: ChatRequest, settings: Settings, base_url: str) -> ChatRequest:
    """Return the request with the settings for its model added. Values that the editor set are kept.

    Raises:
        RequestError: If a parameter of the settings or the editor's `providerOptions` are not valid.
    """
    fields, extra = _model_parameters(settings, request.model)
    missing = {name: value for name, value in fields.items() if getattr(request, name) is None}
    request = msgspec.structs.replace(request, **missing)
    editor_extra = request.extra or {}
    extra = {**extra, **editor_extra}
    editor_options = editor_extra.get(PROVIDER_OPTIONS)
    if editor_options is not None and not isinstance(editor_options, Mapping):
        kind = type(editor_options).__name__
        raise RequestError(f"{PROVIDER_OPTIONS} must be a JSON object, not {kind}.")
    options = merge_options(provider_options(request, settings, base_url), editor_options or {})
    if options:
        extra[PROVIDER_OPTIONS] = options
    return msgspec.structs.replace(request, extra=extra or None, cache_prompt=settings.prompt_caching)


def provider_options(request: ChatRequest, settings: Settings, base_url: str) -> Json:
    """Return the provider options for a request.

    These are the defaults, overridden by each matching pattern of the settings, the most specific last.
    """
    options: Json = {}
    if settings.context_management and (
        edits := choose_edits(request, base_url, caching=settings.prompt_caching)
    ):
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
