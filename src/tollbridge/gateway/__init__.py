"""An embedded OpenResponses gateway: a scripted model, and every fault a client should survive."""

from tollbridge.gateway.arrivals import Arrival
from tollbridge.gateway.catalog import MODELS
from tollbridge.gateway.scenarios import SCENARIOS, VALID, describe_scenarios
from tollbridge.gateway.server import Gateway, run
from tollbridge.gateway.service import SCENARIO_HEADER
from tollbridge.gateway.tampering import Settings

__all__ = [
    "MODELS",
    "SCENARIOS",
    "SCENARIO_HEADER",
    "VALID",
    "Arrival",
    "Gateway",
    "Settings",
    "describe_scenarios",
    "run",
]
