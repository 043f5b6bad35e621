"""The models that the gateway serves, in the form in which gateways list models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tollbridge.testing.refusals import RequestRejected, reject, show_value

_RELEASED = 1_767_225_600  # 2026-01-01, so that the list is the same every day

_COMMON = {"object": "model", "created": _RELEASED, "released": _RELEASED, "owned_by": "tollbridge"}

MODELS: tuple[Mapping[str, Any], ...] = (
    {
        "id": "tollbridge/demo",
        **_COMMON,
        "name": "Demo",
        "description": "A scripted model that supports tools, images and reasoning.",
        "context_window": 128_000,
        "max_tokens": 64_000,
        "type": "language",
        "tags": ["file-input", "image-generation", "implicit-caching", "reasoning", "tool-use", "vision"],
        "pricing": {
            "input": "0.000001",
            "output": "0.000004",
            "input_cache_read": "0.0000001",
            "input_cache_write": "0.00000125",
        },
        "reasoning_options": [{"type": "effort", "values": ["none", "low", "medium", "high", "xhigh"]}],
        "supported_parameters": [
            "include_reasoning",
            "max_tokens",
            "reasoning",
            "temperature",
            "tool_choice",
            "tools",
        ],
    },
    {
        "id": "tollbridge/plain",
        **_COMMON,
        "name": "Plain",
        "description": "A scripted model with a small context window that supports only text.",
        "context_window": 4_096,
        "max_tokens": 1_024,
        "type": "language",
        "tags": [],
        "pricing": {"input": "0.0000001", "output": "0.0000002"},
        "reasoning_options": [],
        "supported_parameters": ["max_tokens", "temperature"],
    },
    {
        "id": "tollbridge/embed",
        **_COMMON,
        "name": "Embed",
        "description": "An embedding model, listed to test that clients skip it.",
        "context_window": 8_192,
        "max_tokens": 0,
        "type": "embedding",
        "tags": [],
        "pricing": {"input": "0.00000002"},
        "reasoning_options": [],
        "supported_parameters": [],
    },
)

_BY_ID = {model["id"]: model for model in MODELS}


def list_models(window: int | None = None) -> list[Mapping[str, Any]]:
    """Return the entries of all models, with another context window if one is given."""
    return [{**model, "context_window": window or model["context_window"]} for model in MODELS]


def find_model(model_id: str) -> Mapping[str, Any]:
    """Return the entry of a model. An unknown one is rejected."""
    model = _BY_ID.get(model_id)
    if model is None:
        valid = ", ".join(_BY_ID)
        message = f"The model {show_value(model_id)} does not exist. Valid models: {valid}."
        raise RequestRejected(404, "model_not_found", message, param="model")
    return model


def describe_endpoints(model_id: str) -> dict[str, Any]:
    """Return the endpoints of a model, in the format of `GET /models/{id}/endpoints`."""
    model = find_model(model_id)
    pricing = model["pricing"]
    names = {"input": "prompt", "output": "completion"}
    inputs = ["text", *(["image"] if "vision" in model["tags"] else [])]
    return {
        **{name: model[name] for name in ("id", "name", "created", "released", "description")},
        "architecture": {
            "tokenizer": "Other",
            "instruct_type": None,
            "modality": f"{'+'.join(inputs)}->text",
            "input_modalities": inputs,
            "output_modalities": ["text"],
        },
        "endpoints": [
            {
                "name": f"tollbridge | {model['id']}",
                "model_name": model["name"],
                "context_length": model["context_window"],
                "max_completion_tokens": model["max_tokens"],
                "pricing": {names.get(name, name): price for name, price in pricing.items()},
                "provider_name": "tollbridge",
                "supported_parameters": model["supported_parameters"],
                "status": 0,
                "supports_implicit_caching": "implicit-caching" in model["tags"],
            }
        ],
    }


def find_language_model(model_id: str) -> Mapping[str, Any]:
    """Return the entry of a model that can create responses. Any other is rejected."""
    model = find_model(model_id)
    if model["type"] != "language":
        problem = f"The model {show_value(model_id)} is of type {model['type']} and cannot create responses."
        reject("unsupported_model", problem, "model")
    return model


def list_page(after: str | None, limit: str | None, window: int | None = None) -> dict[str, Any]:
    """Return a page of the model list as Anthropic's API sends it: at most `limit` models after `after`.

    The context window is that of all models; by default, each has its own.
    """
    models = list_models(window)
    ids = [model["id"] for model in models]
    first = ids.index(after) + 1 if after in ids else 0
    end = first + (int(limit) if limit and limit.isdecimal() else len(ids))
    page = [_describe_model(model) for model in models[first:end]]
    edges = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {}
    return {"data": page, "has_more": end < len(ids), **edges}


def _describe_model(model: Mapping[str, Any]) -> dict[str, Any]:
    tags = {"image_input": "vision", "pdf_input": "file-input", "thinking": "reasoning"}
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["name"],
        "created_at": "2026-01-01T00:00:00Z",
        "max_input_tokens": model["context_window"],
        "max_tokens": model["max_tokens"],
        "capabilities": {name: {"supported": tag in model["tags"]} for name, tag in tags.items()},
    }
