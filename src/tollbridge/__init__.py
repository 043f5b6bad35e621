"""Tollbridge connects editors, agents and programs to language-model gateways.

    from tollbridge import SyncEngine
    with SyncEngine.open() as engine:
        print(engine.create("Hello!", model="openai/gpt-5.4").text)

To read about one name, use `help(tollbridge.Engine)`. The public names:

Engine: Engine, SyncEngine, Turn, Answer, Account, Settings, Observer, UsageTracker, CacheReport, Model,
    Capabilities, Prices, PriceTier, Credits
Clients of one server: OpenResponsesClient, ChatCompletionsClient, AnthropicMessagesClient, AiSdkClient,
    UiStreamClient, RetryPolicy, Timeouts
Stream adapters for editors: OpenResponsesStreamAdapter, VSCodeStreamAdapter, ChatModelProvider
Token estimator: HybridTokenEstimator, EstimationResult, Preflight
Messages: ChatRequest, Message, Role, Part, TextPart, ThinkingPart, DataPart, ToolCallPart, ToolResultPart,
    Tool, NamedTool, OutputFormat, ModelMessages, convert_messages, translate_messages
Events: Event, TextDelta, ReasoningDelta, ReasoningEnded, ToolCall, File, Source, Data, Corrected, Finished,
    Failed, Usage, Billing, Cost
Errors: BridgeError, RequestError, BudgetExceeded, GatewayError, NotAuthenticated, NotPermitted, NotFound,
    RateLimited, ContextTooLong, ContentFiltered, InvalidRequest, Overloaded, ServerFailed, ConnectionBroken,
    NetworkFailed, TimedOut, Disconnected, StreamError, BrokenCall

Public names are imported on first use, so that a program only loads what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tollbridge._version import __version__ as __version__

if TYPE_CHECKING:
    from tollbridge.answer import Answer as Answer
    from tollbridge.clients.observer import Observer as Observer
    from tollbridge.clients.protocols import AiSdkClient as AiSdkClient
    from tollbridge.clients.protocols import AnthropicMessagesClient as AnthropicMessagesClient
    from tollbridge.clients.protocols import ChatCompletionsClient as ChatCompletionsClient
    from tollbridge.clients.protocols import OpenResponsesClient as OpenResponsesClient
    from tollbridge.clients.protocols import UiStreamClient as UiStreamClient
    from tollbridge.config.schema import Account as Account
    from tollbridge.config.schema import Settings as Settings
    from tollbridge.engine import Engine as Engine
    from tollbridge.estimator import HybridTokenEstimator as HybridTokenEstimator
    from tollbridge.estimator import Preflight as Preflight
    from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter as OpenResponsesStreamAdapter
    from tollbridge.frontends.vscode.adapters import VSCodeStreamAdapter as VSCodeStreamAdapter
    from tollbridge.frontends.vscode.provider import ChatModelProvider as ChatModelProvider
    from tollbridge.protocols.ai_sdk.requests import ModelMessages as ModelMessages
    from tollbridge.protocols.ai_sdk.requests import convert_messages as convert_messages
    from tollbridge.protocols.billing import Credits as Credits
    from tollbridge.protocols.openresponses.requests import translate_messages as translate_messages
    from tollbridge.storage.tracker import UsageTracker as UsageTracker
    from tollbridge.sync import SyncEngine as SyncEngine
    from tollbridge.tokens.ledger import EstimationResult as EstimationResult
    from tollbridge.tokens.prompt_cache import CacheReport as CacheReport
    from tollbridge.transport.retry import RetryPolicy as RetryPolicy
    from tollbridge.transport.retry import Timeouts as Timeouts
    from tollbridge.turn import Turn as Turn
    from tollbridge.types.errors import BridgeError as BridgeError
    from tollbridge.types.errors import BrokenCall as BrokenCall
    from tollbridge.types.errors import BudgetExceeded as BudgetExceeded
    from tollbridge.types.errors import ConnectionBroken as ConnectionBroken
    from tollbridge.types.errors import ContentFiltered as ContentFiltered
    from tollbridge.types.errors import ContextTooLong as ContextTooLong
    from tollbridge.types.errors import Disconnected as Disconnected
    from tollbridge.types.errors import GatewayError as GatewayError
    from tollbridge.types.errors import InvalidRequest as InvalidRequest
    from tollbridge.types.errors import NetworkFailed as NetworkFailed
    from tollbridge.types.errors import NotAuthenticated as NotAuthenticated
    from tollbridge.types.errors import NotFound as NotFound
    from tollbridge.types.errors import NotPermitted as NotPermitted
    from tollbridge.types.errors import Overloaded as Overloaded
    from tollbridge.types.errors import RateLimited as RateLimited
    from tollbridge.types.errors import RequestError as RequestError
    from tollbridge.types.errors import ServerFailed as ServerFailed
    from tollbridge.types.errors import StreamError as StreamError
    from tollbridge.types.errors import TimedOut as TimedOut
    from tollbridge.types.events import Billing as Billing
    from tollbridge.types.events import Corrected as Corrected
    from tollbridge.types.events import Cost as Cost
    from tollbridge.types.events import Data as Data
    from tollbridge.types.events import Event as Event
    from tollbridge.types.events import Failed as Failed
    from tollbridge.types.events import File as File
    from tollbridge.types.events import Finished as Finished
    from tollbridge.types.events import ReasoningDelta as ReasoningDelta
    from tollbridge.types.events import ReasoningEnded as ReasoningEnded
    from tollbridge.types.events import Source as Source
    from tollbridge.types.events import TextDelta as TextDelta
    from tollbridge.types.events import ToolCall as ToolCall
    from tollbridge.types.events import Usage as Usage
    from tollbridge.types.messages import ChatRequest as ChatRequest
    from tollbridge.types.messages import DataPart as DataPart
    from tollbridge.types.messages import Message as Message
    from tollbridge.types.messages import NamedTool as NamedTool
    from tollbridge.types.messages import OutputFormat as OutputFormat
    from tollbridge.types.messages import Part as Part
    from tollbridge.types.messages import Role as Role
    from tollbridge.types.messages import TextPart as TextPart
    from tollbridge.types.messages import ThinkingPart as ThinkingPart
    from tollbridge.types.messages import Tool as Tool
    from tollbridge.types.messages import ToolCallPart as ToolCallPart
    from tollbridge.types.messages import ToolResultPart as ToolResultPart
    from tollbridge.types.models import Capabilities as Capabilities
    from tollbridge.types.models import Model as Model
    from tollbridge.types.models import Prices as Prices
    from tollbridge.types.models import PriceTier as PriceTier

# The public names, by the module that defines them.
_PUBLIC: dict[str, tuple[str, ...]] = {
    "tollbridge.answer": ("Answer",),
    "tollbridge.clients.observer": ("Observer",),
    "tollbridge.clients.protocols": (
        "AiSdkClient",
        "AnthropicMessagesClient",
        "ChatCompletionsClient",
        "OpenResponsesClient",
        "UiStreamClient",
    ),
    "tollbridge.config.schema": ("Account", "Settings"),
    "tollbridge.engine": ("Engine",),
    "tollbridge.estimator": (
        "HybridTokenEstimator",
        "Preflight",
    ),
    "tollbridge.frontends.vscode.adapters": (
        "OpenResponsesStreamAdapter",
        "VSCodeStreamAdapter",
    ),
    "tollbridge.frontends.vscode.provider": ("ChatModelProvider",),
    "tollbridge.protocols.ai_sdk.requests": (
        "ModelMessages",
        "convert_messages",
    ),
    "tollbridge.protocols.billing": ("Credits",),
    "tollbridge.protocols.openresponses.requests": ("translate_messages",),
    "tollbridge.storage.tracker": ("UsageTracker",),
    "tollbridge.sync": ("SyncEngine",),
    "tollbridge.tokens.ledger": ("EstimationResult",),
    "tollbridge.tokens.prompt_cache": ("CacheReport",),
    "tollbridge.transport.retry": (
        "RetryPolicy",
        "Timeouts",
    ),
    "tollbridge.turn": ("Turn",),
    "tollbridge.types.errors": (
        "BridgeError",
        "BrokenCall",
        "BudgetExceeded",
        "ConnectionBroken",
        "ContentFiltered",
        "ContextTooLong",
        "Disconnected",
        "GatewayError",
        "InvalidRequest",
        "NetworkFailed",
        "NotAuthenticated",
        "NotFound",
        "NotPermitted",
        "Overloaded",
        "RateLimited",
        "RequestError",
        "ServerFailed",
        "StreamError",
        "TimedOut",
    ),
    "tollbridge.types.events": (
        "Billing",
        "Corrected",
        "Cost",
        "Data",
        "Event",
        "Failed",
        "File",
        "Finished",
        "ReasoningDelta",
        "ReasoningEnded",
        "Source",
        "TextDelta",
        "ToolCall",
        "Usage",
    ),
    "tollbridge.types.messages": (
        "ChatRequest",
        "DataPart",
        "Message",
        "NamedTool",
        "OutputFormat",
        "Part",
        "Role",
        "TextPart",
        "ThinkingPart",
        "Tool",
        "ToolCallPart",
        "ToolResultPart",
    ),
    "tollbridge.types.models": (
        "Capabilities",
        "Model",
        "PriceTier",
        "Prices",
    ),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tollbridge' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
