"""An embedded OpenResponses gateway: a scripted model, and every fault a client should survive."""

from tollbridge.gateway.answers import Answer, Call, Draw, Refuse, Say, Think
from tollbridge.gateway.arrivals import Arrival
from tollbridge.gateway.catalog import MODELS
from tollbridge.gateway.replies import Reply
from tollbridge.gateway.scenarios import SCENARIOS, VALID, describe_scenarios
from tollbridge.gateway.server import Gateway, run
from tollbridge.gateway.service import SCENARIO_HEADER
from tollbridge.gateway.tampering import Settings
from tollbridge.gateway.turns import Turn

__all__ = [
    "MODELS",
    "SCENARIOS",
    "SCENARIO_HEADER",
    "VALID",
    "Answer",
    "Arrival",
    "Call",
    "Draw",
    "Gateway",
    "Refuse",
    "Reply",
    "Say",
    "Settings",
    "Think",
    "Turn",
    "describe_scenarios",
    "run",
]
