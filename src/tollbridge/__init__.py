"""Tollbridge: the bridge between editors and AI gateways.

Names are loaded when they are first used: an editor's sidecar starts without what it does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tollbridge.adapters.openresponses import OpenResponsesStreamAdapter as OpenResponsesStreamAdapter
    from tollbridge.adapters.stream import StreamUsage as StreamUsage
    from tollbridge.adapters.vscode_stream import VSCodeStreamAdapter as VSCodeStreamAdapter
    from tollbridge.bridge import Bridge as Bridge
    from tollbridge.bridge import Turn as Turn
    from tollbridge.clients.aisdk import AiSdkClient as AiSdkClient
    from tollbridge.clients.aisdk import UiStreamClient as UiStreamClient
    from tollbridge.clients.openresponses import Answer as Answer
    from tollbridge.clients.openresponses import OpenResponsesClient as OpenResponsesClient
    from tollbridge.core.errors import BridgeError as BridgeError
    from tollbridge.core.errors import BrokenCall as BrokenCall
    from tollbridge.core.errors import ConnectionBroken as ConnectionBroken
    from tollbridge.core.errors import ContentFiltered as ContentFiltered
    from tollbridge.core.errors import ContextTooLong as ContextTooLong
    from tollbridge.core.errors import Disconnected as Disconnected
    from tollbridge.core.errors import GatewayError as GatewayError
    from tollbridge.core.errors import InvalidRequest as InvalidRequest
    from tollbridge.core.errors import NetworkFailed as NetworkFailed
    from tollbridge.core.errors import NotAuthenticated as NotAuthenticated
    from tollbridge.core.errors import NotFound as NotFound
    from tollbridge.core.errors import NotPermitted as NotPermitted
    from tollbridge.core.errors import Overloaded as Overloaded
    from tollbridge.core.errors import RateLimited as RateLimited
    from tollbridge.core.errors import RequestError as RequestError
    from tollbridge.core.errors import ServerFailed as ServerFailed
    from tollbridge.core.errors import StreamError as StreamError
    from tollbridge.core.errors import TimedOut as TimedOut
    from tollbridge.core.messages import ChatRequest as ChatRequest
    from tollbridge.core.messages import DataPart as DataPart
    from tollbridge.core.messages import Message as Message
    from tollbridge.core.messages import NamedTool as NamedTool
    from tollbridge.core.messages import OutputFormat as OutputFormat
    from tollbridge.core.messages import Role as Role
    from tollbridge.core.messages import TextPart as TextPart
    from tollbridge.core.messages import ThinkingPart as ThinkingPart
    from tollbridge.core.messages import Tool as Tool
    from tollbridge.core.messages import ToolCallPart as ToolCallPart
    from tollbridge.core.messages import ToolResultPart as ToolResultPart
    from tollbridge.core.models import Model as Model
    from tollbridge.core.usage import Usage as Usage
    from tollbridge.estimator import HybridTokenEstimator as HybridTokenEstimator
    from tollbridge.gateways.aisdk.encode import ModelMessages as ModelMessages
    from tollbridge.gateways.aisdk.encode import convert_messages as convert_messages
    from tollbridge.gateways.openresponses.encode import translate_messages as translate_messages
    from tollbridge.io.http import Timeouts as Timeouts
    from tollbridge.io.retry import RetryPolicy as RetryPolicy
    from tollbridge.provider import ChatModelProvider as ChatModelProvider
    from tollbridge.tokens import EstimationResult as EstimationResult
    from tollbridge.usage import UsageTracker as UsageTracker

_ERRORS = (
    "BridgeError BrokenCall ConnectionBroken ContentFiltered ContextTooLong Disconnected "
    "GatewayError InvalidRequest NetworkFailed NotAuthenticated NotFound NotPermitted Overloaded RateLimited "
    "RequestError ServerFailed StreamError TimedOut"
)
_MESSAGES = (
    "ChatRequest DataPart Message NamedTool OutputFormat Role TextPart ThinkingPart Tool ToolCallPart "
    "ToolResultPart"
)

# Where each public name lives.
_HOMES: dict[str, str] = {
    **dict.fromkeys(_ERRORS.split(), "tollbridge.core.errors"),
    **dict.fromkeys(_MESSAGES.split(), "tollbridge.core.messages"),
    "AiSdkClient": "tollbridge.clients.aisdk",
    "Answer": "tollbridge.clients.openresponses",
    "Bridge": "tollbridge.bridge",
    "ChatModelProvider": "tollbridge.provider",
    "EstimationResult": "tollbridge.tokens",
    "HybridTokenEstimator": "tollbridge.estimator",
    "Model": "tollbridge.core.models",
    "ModelMessages": "tollbridge.gateways.aisdk.encode",
    "OpenResponsesClient": "tollbridge.clients.openresponses",
    "OpenResponsesStreamAdapter": "tollbridge.adapters.openresponses",
    "RetryPolicy": "tollbridge.io.retry",
    "StreamUsage": "tollbridge.adapters.stream",
    "Timeouts": "tollbridge.io.http",
    "Turn": "tollbridge.bridge",
    "UiStreamClient": "tollbridge.clients.aisdk",
    "Usage": "tollbridge.core.usage",
    "UsageTracker": "tollbridge.usage",
    "VSCodeStreamAdapter": "tollbridge.adapters.vscode_stream",
    "convert_messages": "tollbridge.gateways.aisdk.encode",
    "translate_messages": "tollbridge.gateways.openresponses.encode",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"tollbridge has no {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
