"""The embedded gateway for tests: its scripted model can simulate every fault of a server."""

from __future__ import annotations

from tollbridge.testing.catalog import MODELS
from tollbridge.testing.faults import FaultSettings
from tollbridge.testing.prompt_cache import PROVIDER_CACHE, CacheSettings
from tollbridge.testing.refusals import CannedReply
from tollbridge.testing.requests import AcceptedRequest, PromptSettings
from tollbridge.testing.responses import Call, Draw, Refuse, Say, ScriptedAnswer, Think
from tollbridge.testing.scenarios import SCENARIOS, VALID, describe_scenarios
from tollbridge.testing.server import Gateway, run
from tollbridge.testing.service import SCENARIO_HEADER, ReceivedRequest

__all__ = [
    "MODELS",
    "PROVIDER_CACHE",
    "SCENARIOS",
    "SCENARIO_HEADER",
    "VALID",
    "AcceptedRequest",
    "CacheSettings",
    "Call",
    "CannedReply",
    "Draw",
    "FaultSettings",
    "Gateway",
    "PromptSettings",
    "ReceivedRequest",
    "Refuse",
    "Say",
    "ScriptedAnswer",
    "Think",
    "describe_scenarios",
    "run",
]
