"""A real litellm proxy, in a separate environment that is created on first use."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from tests.interop import environment

REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
# No prices from the network, no telemetry.
_ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}


class Proxy(NamedTuple):
    url: str
    key: str
    model: str


def config(upstream: str, key: str, model: str) -> str:
    """Return the configuration of the proxy, as JSON, which is valid YAML."""
    return json.dumps(
        {
            "model_list": [
                {
                    "model_name": model,
                    "litellm_params": {"model": "lm_studio/mock", "api_base": upstream, "api_key": "none"},
                }
            ],
            "litellm_settings": {"drop_params": True, "telemetry": False, "num_retries": 0},
            "router_settings": {"disable_cooldowns": True},
            "general_settings": {"master_key": key},
        }
    )


@contextlib.asynccontextmanager
async def running(upstream: str, model: str = "bridge-test") -> AsyncIterator[Proxy]:
    """Run the proxy for an upstream, on a free port, with a random key."""
    home, key = environment.install(REQUIREMENTS), f"sk-{secrets.token_hex(20)}"

    def command(port: int, folder: Path) -> list[str | Path]:
        settings = folder / "config.yaml"
        settings.write_text(config(upstream, key, model))
        arguments = ("--config", settings, "--host", "127.0.0.1", "--port", str(port))
        return [home / "bin" / "litellm", *arguments]

    async with environment.running(command, "/health/liveliness", _ENVIRONMENT) as address:
        yield Proxy(f"{address}/v1", key, model)
