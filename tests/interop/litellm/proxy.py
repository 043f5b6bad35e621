"""A real litellm proxy, in a separate environment that is created on first use."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop import environment

REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
# No prices from the network, no telemetry.
_ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}


# A model with prices, in US dollars per token. Its upstream is the embedded gateway, over the Messages API.
PRICED_MODEL = "bridge-priced"
PRICES = {
    "input_cost_per_token": 0.000003,
    "output_cost_per_token": 0.000015,
    "cache_read_input_token_cost": 0.0000003,
    "cache_creation_input_token_cost": 0.00000375,
}


class Proxy(NamedTuple):
    url: str
    key: str
    model: str


def config(upstream: str, key: str, model: str, priced: str | None = None) -> str:
    """Return the configuration of the proxy, as JSON, which is valid YAML."""
    settings: dict[str, Any] = {"drop_params": True, "telemetry": False, "num_retries": 0}
    models: dict[str, dict[str, Any]] = {
        model: {"model": "lm_studio/mock", "api_base": upstream, "api_key": "none"}
    }
    if priced is not None:
        settings["include_cost_in_streaming_usage"] = True
        base = {"model": "anthropic/tollbridge/demo", "api_base": priced, "api_key": "none"}
        models[PRICED_MODEL] = {**base, **PRICES}
    return json.dumps(
        {
            "model_list": [
                {"model_name": name, "litellm_params": parameters} for name, parameters in models.items()
            ],
            "litellm_settings": settings,
            "router_settings": {"disable_cooldowns": True},
            "general_settings": {"master_key": key},
        }
    )


@contextlib.asynccontextmanager
async def running(
    upstream: str, model: str = "bridge-test", *, priced: str | None = None
) -> AsyncIterator[Proxy]:
    """Run the proxy for an upstream, on a free port, with a random key.

    Args:
        upstream: The base URL of a Chat Completions server.
        model: The name of its model.
        priced: The URL of a Messages server, without `/v1`. It gets `PRICED_MODEL`, and streams have costs.
    """
    home, key = environment.install(REQUIREMENTS), f"sk-{secrets.token_hex(20)}"

    def command(port: int, folder: Path) -> list[str | Path]:
        settings = folder / "config.yaml"
        settings.write_text(config(upstream, key, model, priced))
        arguments = ("--config", settings, "--host", "127.0.0.1", "--port", str(port))
        return [home / "bin" / "litellm", *arguments]

    async with environment.running(command, "/health/liveliness", _ENVIRONMENT) as address:
        yield Proxy(f"{address}/v1", key, model)
