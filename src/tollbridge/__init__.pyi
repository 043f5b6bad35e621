# The public names of the package, each once. `tollbridge/__init__.py` imports a name from here on first use.

from tollbridge._version import __version__ as __version__

# Programs start here
from tollbridge.engine import Engine as Engine
from tollbridge.sync import SyncEngine as SyncEngine
from tollbridge.turn import Turn as Turn
from tollbridge.answer import Answer as Answer
from tollbridge.frontends.vscode.provider import ChatModelProvider as ChatModelProvider

# A request: messages, their parts, tools
from tollbridge.types.messages import ChatRequest as ChatRequest
from tollbridge.types.messages import Message as Message
from tollbridge.types.messages import Role as Role
from tollbridge.types.messages import Part as Part
from tollbridge.types.messages import TextPart as TextPart
from tollbridge.types.messages import ThinkingPart as ThinkingPart
from tollbridge.types.messages import ToolCallPart as ToolCallPart
from tollbridge.types.messages import ToolResultPart as ToolResultPart
from tollbridge.types.messages import DataPart as DataPart
from tollbridge.types.messages import Tool as Tool
from tollbridge.types.messages import NamedTool as NamedTool
from tollbridge.types.messages import OutputFormat as OutputFormat

# The events of a streamed answer
from tollbridge.types.events import Event as Event
from tollbridge.types.events import TextDelta as TextDelta
from tollbridge.types.events import ReasoningDelta as ReasoningDelta
from tollbridge.types.events import ReasoningEnded as ReasoningEnded
from tollbridge.types.events import ToolCall as ToolCall
from tollbridge.types.events import File as File
from tollbridge.types.events import Source as Source
from tollbridge.types.events import Data as Data
from tollbridge.types.events import Corrected as Corrected
from tollbridge.types.events import Finished as Finished
from tollbridge.types.events import Failed as Failed
from tollbridge.types.events import Usage as Usage
from tollbridge.types.events import Cost as Cost
from tollbridge.types.events import Billing as Billing
from tollbridge.types.events import CacheDiagnosis as CacheDiagnosis

# Errors
from tollbridge.types.errors import BridgeError as BridgeError
from tollbridge.types.errors import GatewayError as GatewayError
from tollbridge.types.errors import RequestError as RequestError
from tollbridge.types.errors import BrokenCall as BrokenCall
from tollbridge.types.errors import BudgetExceeded as BudgetExceeded
from tollbridge.types.errors import ConnectionBroken as ConnectionBroken
from tollbridge.types.errors import ContentFiltered as ContentFiltered
from tollbridge.types.errors import ContextTooLong as ContextTooLong
from tollbridge.types.errors import Disconnected as Disconnected
from tollbridge.types.errors import InvalidRequest as InvalidRequest
from tollbridge.types.errors import NetworkFailed as NetworkFailed
from tollbridge.types.errors import NotAuthenticated as NotAuthenticated
from tollbridge.types.errors import NotFound as NotFound
from tollbridge.types.errors import NotPermitted as NotPermitted
from tollbridge.types.errors import Overloaded as Overloaded
from tollbridge.types.errors import RateLimited as RateLimited
from tollbridge.types.errors import ServerFailed as ServerFailed
from tollbridge.config.errors import SettingsUnusable as SettingsUnusable
from tollbridge.storage.store import StoreUnusable as StoreUnusable
from tollbridge.types.errors import StreamError as StreamError
from tollbridge.types.errors import TimedOut as TimedOut

# Settings
from tollbridge.config.schema import Settings as Settings
from tollbridge.config.schema import Account as Account
from tollbridge.config.schema import AccountSettings as AccountSettings
from tollbridge.config.schema import BudgetSettings as BudgetSettings
from tollbridge.config.schema import ModelSettings as ModelSettings
from tollbridge.config.schema import TimeoutSettings as TimeoutSettings
from tollbridge.config.schema import SecretHeader as SecretHeader

# Models
from tollbridge.catalog.models import Catalog as Catalog
from tollbridge.catalog.models import Listing as Listing
from tollbridge.types.models import Model as Model
from tollbridge.types.models import Capabilities as Capabilities
from tollbridge.types.models import Identity as Identity
from tollbridge.types.models import Limits as Limits
from tollbridge.types.models import Prices as Prices
from tollbridge.types.models import PriceTier as PriceTier
from tollbridge.protocols.model_list import Endpoints as Endpoints

# What is stored: usage, budgets, cache reports
from tollbridge.storage.store import Store as Store
from tollbridge.storage.tracker import UsageTracker as UsageTracker
from tollbridge.storage.rows import UsageRow as UsageRow
from tollbridge.storage.reports import UsageReport as UsageReport
from tollbridge.storage.reports import UsageGroup as UsageGroup
from tollbridge.storage.reports import UsageTotals as UsageTotals
from tollbridge.storage.budgets import BudgetStatus as BudgetStatus
from tollbridge.tokens.prompt_cache import CacheReport as CacheReport
from tollbridge.storage.rows import StoredReport as StoredReport

# Token counts
from tollbridge.estimator import HybridTokenEstimator as HybridTokenEstimator
from tollbridge.tokens.ledger import EstimationResult as EstimationResult
from tollbridge.estimator import Preflight as Preflight
from tollbridge.tokens.records import Accuracy as Accuracy

# Clients of one gateway, without an engine
from tollbridge.clients.base import GatewayClient as GatewayClient
from tollbridge.clients.protocols import OpenResponsesClient as OpenResponsesClient
from tollbridge.clients.protocols import ChatCompletionsClient as ChatCompletionsClient
from tollbridge.clients.protocols import AnthropicMessagesClient as AnthropicMessagesClient
from tollbridge.clients.protocols import AiSdkClient as AiSdkClient
from tollbridge.clients.protocols import UiStreamClient as UiStreamClient
from tollbridge.clients.observer import Observer as Observer
from tollbridge.transport.retry import RetryPolicy as RetryPolicy
from tollbridge.transport.retry import Timeouts as Timeouts
from tollbridge.protocols.billing import Credits as Credits
from tollbridge.protocols.billing import Generation as Generation

# Conversion of messages and streams
from tollbridge.frontends.vscode.adapters import OpenResponsesStreamAdapter as OpenResponsesStreamAdapter
from tollbridge.frontends.vscode.adapters import VSCodeStreamAdapter as VSCodeStreamAdapter
from tollbridge.protocols.openresponses.requests import translate_messages as translate_messages
from tollbridge.protocols.ai_sdk.requests import convert_messages as convert_messages
from tollbridge.protocols.ai_sdk.requests import ModelMessages as ModelMessages

# What is known about gateways
from tollbridge.compat.memory import CompatMemory as CompatMemory
from tollbridge.types.quirks import Quirks as Quirks
from tollbridge.types.quirks import LearnedQuirks as LearnedQuirks
from tollbridge.types.quirks import Lesson as Lesson
