"""Convert VS Code's messages to ours, and our parts, usage, models and errors to VS Code's.

The sections: reasoning markers, chat requests and messages of VS Code, what is sent to VS Code.
"""

from __future__ import annotations

import binascii
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import msgspec

from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.images import shorten_images
from tollbridge.types.errors import (
    BridgeError,
    BudgetExceeded,
    ContextTooLong,
    Kind,
    RequestError,
    StreamError,
)
from tollbridge.types.events import Usage
from tollbridge.types.media import detect_mime, is_text
from tollbridge.types.messages import (
    PACK_MIME,
    ChatRequest,
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    read_reasoning_pack,
)
from tollbridge.types.models import Model, Prices
from tollbridge.types.text import MAX_DEPTH, limit_depth, write_json

log = logging.getLogger(__name__)


# --- Reasoning markers ---
#
# A marker is the name of a model, a backslash, and data in base64url. VS Code splits it at backslashes and
# reads two pieces, so neither the name nor the data can contain one.


def encode_marker(model: str, data: bytes) -> bytes:
    """Return a marker.

    Args:
        model: The name of the model, which only VS Code uses: the data contains the origin of the reasoning.
        data: The reasoning.
    """
    return f"{model.replace(chr(92), '_')}\\".encode() + urlsafe_b64encode(data).rstrip(b"=")


def decode_marker(marker: bytes) -> bytes | None:
    """Return the data of a marker, or `None` for a marker of another provider in the same chat."""
    payload = marker.partition(b"\\")[2]
    try:
        data = urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if read_reasoning_pack(data) is not None else None


# --- Requests and messages of VS Code ---

ROLES = {wire.USER: Role.USER, wire.ASSISTANT: Role.ASSISTANT, wire.SYSTEM: Role.SYSTEM}
TOOL_CHOICES: dict[int, ToolChoice | None] = {wire.AUTO: None, wire.REQUIRED: "required"}

# The options that an extension can set: the field of the request, and the type of the value.
OPTIONS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "maxOutputTokens": ("max_output_tokens", int),
    "maxTokens": ("max_output_tokens", int),
    "max_output_tokens": ("max_output_tokens", int),
    "max_tokens": ("max_output_tokens", int),
    "parallel_tool_calls": ("parallel_tool_calls", bool),
    "reasoningEffort": ("reasoning_effort", str),
    "reasoning_effort": ("reasoning_effort", str),
    "temperature": ("temperature", (int, float)),
    "topP": ("top_p", (int, float)),
    "top_p": ("top_p", (int, float)),
}
# The options in which VS Code says what a request belongs to. They are not sent.
CONVERSATION = "_conversationId"
# False for requests that should be answered at once: inline chat, terminal chat, titles. Not sent either.
THINKING = "_enableThinking"
_ID_LIMIT = 200  # characters

# What the user chose for VS Code itself, which applies it to the prompt before it sends the request.
EDITOR_OPTIONS = frozenset({"contextSize"})
# Fields of the request body that an extension cannot set.
RESERVED = frozenset({"input", "instructions", "messages", "model", "store", "stream", "tools"})

FILES = frozenset({"application/pdf"})

# The PromptNodeType of a text in the JSON of a prompt-tsx tree.
PROMPT_TEXT = 2


class Decoded(msgspec.Struct, frozen=True):
    """A decoded chat request.

    Attributes:
        request: The request.
        dropped: The number of parts that cannot be sent to a gateway, by mime type or class.
    """

    request: ChatRequest
    dropped: Mapping[str, int]


def decode_chat(chat: wire.Chat, *, takes_files: bool = True, efforts: Sequence[str] = ()) -> Decoded:
    """Decode a chat request.

    Args:
        chat: The request of VS Code.
        takes_files: Whether the model accepts files such as PDF.
        efforts: The reasoning efforts that the model accepts, weakest first.

    Raises:
        RequestError: A role, the tool mode or an option is invalid.
    """
    dropped: Counter[str] = Counter()
    messages = _join_system_messages(
        [
            _decode_message(message, f"messages[{index}]", dropped, takes_files)
            for index, message in enumerate(chat.messages)
        ]
    )
    if chat.tool_mode not in TOOL_CHOICES:
        raise RequestError(f"Invalid toolMode {chat.tool_mode}. Valid values: 1 (Auto), 2 (Required).")
    request = ChatRequest(
        model=chat.model,
        messages=tuple(message for message in messages if message.parts),
        tools=tuple(Tool(tool.name, tool.description, _read_schema(tool)) for tool in chat.tools),
        tool_choice=TOOL_CHOICES[chat.tool_mode] if chat.tools else None,
        conversation=_read_conversation(chat),
        **_decode_options(chat.model_options, chat.model_configuration, efforts),
    )
    return Decoded(request, dict(dropped))


def decode_message(message: wire.Message) -> Message:
    """Decode a single message, as the editor sends it for a token count."""
    return _decode_message(message, "message", Counter(), takes_files=True)


def _decode_message(message: wire.Message, path: str, dropped: Counter[str], takes_files: bool) -> Message:
    role = ROLES.get(message.role)
    if role is None:
        raise RequestError(f"Invalid {path}.role {message.role}. Valid values: 1, 2, 3.")
    parts = (_decode_part(part, dropped, takes_files) for part in message.content)
    return Message(role, tuple(part for part in parts if part is not None), message.name or None)


def _decode_part(part: wire.Part, dropped: Counter[str], takes_files: bool) -> Part | None:
    match part:
        case wire.Thinking(id=wire.WAIT_ID):
            return None  # a note of the extension for the user
        case wire.Thinking(value, id, metadata):
            text = value if isinstance(value, str) else "".join(value)
            # An empty part can contain the signature that the next turn needs.
            return ThinkingPart(text, id, metadata) if text or metadata else None
        case wire.ToolCall(call_id, name, arguments):
            return ToolCallPart(call_id, name, {} if arguments in (None, []) else arguments)
        case wire.ToolResult(call_id, content, is_error):
            parts = (_decode_content(item, dropped, takes_files) for item in content)
            return ToolResultPart(call_id, tuple(item for item in parts if item is not None), is_error)
        case _:
            return _decode_content(part, dropped, takes_files)


def _decode_content(
    part: wire.Text | wire.Data | wire.PromptTsx | wire.Unknown, dropped: Counter[str], takes_files: bool
) -> TextPart | DataPart | None:
    match part:
        case wire.Text(value):
            return TextPart(shorten_images(value)) if value else None
        case wire.PromptTsx(value):
            return TextPart(read_prompt_text(value))
        case wire.Data(mime_type, data):
            return _decode_data(data, mime_type, dropped, takes_files)
        case wire.Unknown(name):
            dropped[name or "unknown"] += 1
            return None


def _decode_data(
    data: bytes, label: str, dropped: Counter[str], takes_files: bool
) -> TextPart | DataPart | None:
    """Decode a data part; its bytes determine the type.

    VS Code scales images and encodes them as PNG, but keeps the original label.
    """
    if label == wire.MARKER_MIME and (reasoning := decode_marker(data)) is not None:
        return DataPart(reasoning, PACK_MIME)
    mime = detect_mime(data, label)
    if is_text(mime):
        return TextPart(data.decode("utf-8", "replace"))
    if mime.startswith("image/") or (mime in FILES and takes_files):
        return DataPart(data, mime)
    dropped[mime] += 1  # markers of VS Code, and files that the model does not accept
    return None


def _read_schema(tool: wire.Tool) -> dict[str, Any] | None:
    """Return the schema of a tool. Some languages encode the empty object for "no arguments" as `[]`."""
    schema = tool.input_schema
    return {**schema, "properties": {}} if schema and schema.get("properties") == [] else schema


def _join_system_messages(messages: Sequence[Message]) -> list[Message]:
    """Join all system messages to one at the start, where all gateways accept it."""
    system = [message for message in messages if message.role is Role.SYSTEM]
    if len(system) <= 1 and (not system or messages[0] is system[0]):
        return list(messages)
    texts = ("\n".join(part.text for part in m.parts if isinstance(part, TextPart)) for m in system)
    joined = Message(Role.SYSTEM, (TextPart("\n\n".join(text for text in texts if text)),))
    return [joined, *(message for message in messages if message.role is not Role.SYSTEM)]


def _read_conversation(chat: wire.Chat) -> str | None:
    """Return the conversation of a request: VS Code passes it in the options, other editors in a field."""
    value = chat.conversation or chat.model_options.get(CONVERSATION)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value[:_ID_LIMIT] or None if isinstance(value, str) else None


def _decode_options(
    options: Mapping[str, Any], configuration: Mapping[str, Any], efforts: Sequence[str]
) -> dict[str, Any]:
    """Return the options as fields of the request. Names that start with `_` are internal to VS Code."""
    fields: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in {**configuration, **options}.items():
        if name.startswith("_") or name in EDITOR_OPTIONS or value is None:
            continue
        if name in RESERVED:
            raise RequestError(f"modelOptions.{name} cannot be set; Tollbridge sets this field.")
        if name not in OPTIONS:
            extra[name] = value
            continue
        field, kind = OPTIONS[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise RequestError(f"modelOptions.{name} has the wrong type: {value!r}.")
        fields[field] = value
    if fields.get("reasoning_effort") == wire.DEFAULT_EFFORT:
        del fields["reasoning_effort"]
    if options.get(THINKING) is False and efforts:
        fields["reasoning_effort"] = efforts[0]
    return {**fields, "extra": extra} if extra else fields


def read_prompt_text(value: Any) -> str:
    """Return the text of a prompt-tsx tree, which a tool of an extension can return as its result.

    The result for a value that is not such a tree is its JSON.
    """
    root = value.get("node") if isinstance(value, dict) else None
    if isinstance(root, dict) and ("children" in root or "text" in root):
        texts: list[str] = []
        _collect_texts(root, texts, 0)
        return "".join(texts)
    return value if isinstance(value, str) else write_json(limit_depth(value))


def _collect_texts(node: Any, texts: list[str], depth: int) -> None:
    if not isinstance(node, dict) or depth > MAX_DEPTH:
        return
    if node.get("type") == PROMPT_TEXT or isinstance(node.get("text"), str):
        if node.get("lineBreakBefore") and texts:
            texts.append("\n")
        text = node.get("text")
        texts.append(text if isinstance(text, str) else "")
    children = node.get("children")
    for child in children if isinstance(children, list) else ():
        _collect_texts(child, texts, depth + 1)


# --- Parts, usage, models and errors for VS Code ---

MILLION = 1_000_000
# The unit of prices in VS Code: a credit is a cent.
CREDITS = 100
NANO = 1_000_000_000
# The fewest tokens that the system prompt and the tools of VS Code's agent take.
AGENT_PROMPT = 16_000

# What the user can do, by the kind of the error. It is appended to the message of the gateway.
ADVICE: dict[Kind, str] = {
    "authentication": "Check the account's API key.",
    "permission": "The API key does not have access to this model.",
    "not_found": "Choose a model of the gateway's current list.",
    "rate_limited": "Try again later.",
    "budget_exceeded": "Change the budget with `tollbridge budget set`, or allow this request.",
    "context_too_long": "Start a new chat or remove attachments.",
    "overloaded": "Try again in a moment.",
    "network": "Check the account's base URL and the network.",
    "timeout": "Try again, or increase the timeouts.",
    "disconnected": "The partial answer was kept. Try again.",
}

# The same with the names of the extension's commands and settings.
VSCODE_ADVICE: dict[Kind, str] = {
    **ADVICE,
    "authentication": "Check the account's API key with “Tollbridge: Set Up”.",
    "not_found": "Run “Tollbridge: Refresh Models” to update the model list.",
    "budget_exceeded": "Choose “Allow Over Budget Today” to send it, or change tollbridge.budgets.",
    "timeout": "Try again, or increase tollbridge.timeouts.",
}

EFFORT_LABELS = {wire.DEFAULT_EFFORT: "Auto", "xhigh": "Extra High"}
EFFORT_DESCRIPTIONS = {
    wire.DEFAULT_EFFORT: "What the model does if nothing is set",
    "none": "No reasoning",
    "minimal": "Minimal reasoning",
    "low": "Little reasoning, faster answers",
    "medium": "Balance between speed and reasoning",
    "high": "Extensive reasoning",
    "xhigh": "Very extensive reasoning",
    "max": "Maximum reasoning",
}


def encode_parts(parts: Iterable[Part], model: str = "") -> list[wire.Part]:
    """Return the parts for VS Code.

    Args:
        parts: The parts of an answer.
        model: The model that answered. VS Code stores it with the reasoning that must be sent back.

    Raises:
        StreamError: VS Code cannot represent a part.
    """
    return [_encode_part(part, model) for part in parts]


def encode_usage(usage: Usage | None, cost: Decimal | None = None) -> wire.Data | None:
    """Return the part that updates VS Code's context meter, or `None` if the gateway did not report usage.

    Args:
        usage: What the context window contains.
        cost: The cost of the answer in US dollars, if VS Code should show it as credits.
    """
    if usage is None or not usage.known or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached, reasoning = usage.cached_tokens, usage.reasoning_tokens
    body = wire.UsageJson(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens or usage.input_tokens + usage.output_tokens,
        prompt_tokens_details=None if cached is None else wire.TokenDetails(cached_tokens=cached),
        completion_tokens_details=None
        if reasoning is None
        else wire.TokenDetails(reasoning_tokens=reasoning),
        copilot_usage=None if cost is None else wire.CreditUsage(round(cost * CREDITS * NANO)),
    )
    return wire.Data(wire.USAGE_MIME, msgspec.json.encode(body))


def encode_model_id(model_id: str) -> str:
    """Return an id without slashes, because VS Code uses slashes to separate its own prefix."""
    return model_id.replace("/", ":")


def encode_models(models: Iterable[Model]) -> list[wire.ModelInfo]:
    """Return the model information for VS Code. A model that cannot be encoded is left out and logged."""
    infos: dict[str, wire.ModelInfo] = {}
    for model in models:
        try:
            info = encode_model(model)
        except Exception as error:  # noqa: BLE001 - one model never hides the others
            log.warning("left the model %.100r out of the list: %s", model.id, type(error).__name__)
            continue
        if info.id in infos:  # VS Code would show one of the two: `a/b` and `a:b`
            info = msgspec.structs.replace(info, id=quote(model.id, safe=""))
        infos[info.id] = info
    return list(infos.values())


def encode_model(model: Model) -> wire.ModelInfo:
    """Return the model information for VS Code.

    `family` is the full name without the creator, because VS Code chooses its prompts by the start of it.
    """
    identity, limits, capabilities = model.identity, model.limits, model.capabilities
    prices, warnings = model.prices or Prices(), _find_warnings(model)
    # VS Code has one column for long prompts, so it shows the highest prices.
    long = prices.for_prompt(prices.tiers[-1].min_input) if prices.tiers else Prices()
    return wire.ModelInfo(
        id=encode_model_id(model.id),
        model=model.id,
        name=model.name or identity.name,
        family=identity.name,
        version=identity.version or "1",
        max_input_tokens=limits.input,
        max_output_tokens=limits.output,
        context_window=limits.window,
        max_context_window_tokens=limits.window,
        capabilities=wire.ModelCapabilities(tool_calling=capabilities.tools, image_input=capabilities.images),
        tooltip=" ".join(filter(None, (*warnings.values(), model.description or model.id))),
        detail=identity.creator or model.owner,
        input_cost=_to_credits(prices.input),
        output_cost=_to_credits(prices.output),
        cache_cost=_to_credits(prices.cache_read),
        cache_write_cost=_to_credits(prices.cache_write),
        long_context_input_cost=_to_credits(long.input),
        long_context_output_cost=_to_credits(long.output),
        long_context_cache_cost=_to_credits(long.cache_read),
        long_context_cache_write_cost=_to_credits(long.cache_write),
        pricing=_describe_prices(prices),
        price_category=prices.category,
        category="reasoning" if capabilities.reasoning else None,
        warning_text=warnings or None,
        info_text={"prices": f"Prices: {text}."} if (text := _describe_prices(prices)) else None,
        status_icon=wire.ThemeIcon("warning") if warnings else None,
        configuration_schema=_encode_configuration(model),
    )


def encode_error(
    error: BridgeError, advice_by_kind: Mapping[Kind, str] = VSCODE_ADVICE
) -> tuple[str, dict[str, Any]]:
    """Return the message for the user, and the `data` of the JSON-RPC error."""
    data = {
        "kind": error.kind,
        "status": error.status,
        "code": error.code,
        "retryAfter": error.retry_after,
        "requestId": error.request_id,
    }
    if isinstance(error, ContextTooLong):
        data |= {"tokens": error.tokens, "limit": error.limit}
    if isinstance(error, BudgetExceeded):
        figures = {name: getattr(error, name) for name in ("limit", "spent", "reserved", "estimate")}
        data |= {name: None if value is None else f"{value:f}" for name, value in figures.items()}
        data["budget"] = error.budget
    message = error.message.strip() or "The gateway gave no reason."
    message = message if message[-1] in ".!?”" else f"{message}."
    advice = advice_by_kind.get(error.kind, "") if error.advice is None else error.advice
    if error.kind == "rate_limited" and error.retry_after:
        advice = f"Try again in {error.retry_after:.0f} s."
    return f"{message} {advice}".strip(), {name: value for name, value in data.items() if value is not None}


def _encode_part(part: Part, model: str) -> wire.Part:
    match part:
        case TextPart(text):
            return wire.Text(text)
        case ThinkingPart(text, id, metadata):
            return wire.Thinking(text, id, dict(metadata) if metadata else None)
        case ToolCallPart(call_id, name, arguments):
            return wire.ToolCall(call_id, name, _encode_arguments(name, arguments))
        case DataPart(data, mime) if mime == PACK_MIME:
            return wire.Data(wire.MARKER_MIME, encode_marker(model, data))
        case DataPart(data, mime):
            return wire.Data(mime, data)
        case ToolResultPart(call_id):
            # VS Code would drop it, because it executes all tools itself.
            raise StreamError(f"The gateway sent a tool result ({call_id}), which VS Code cannot show.")


def _encode_arguments(name: str, arguments: Any) -> dict[str, Any]:
    """Return the arguments as an object, because VS Code passes an object to its tools."""
    if isinstance(arguments, dict):
        return arguments
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    raise StreamError(f"The model called the tool {name} with arguments that are not a JSON object.")


def _to_credits(price: Decimal | None) -> float | None:
    """Return a price per token as VS Code shows it: in credits per million tokens."""
    return None if price is None else float(price * MILLION * CREDITS)


def _describe_prices(prices: Prices) -> str | None:
    """Return the prices in US dollars, as a text for users."""
    if prices.input is None or prices.output is None:
        return None
    amounts = {"in": prices.input, "cached": prices.cache_read, "out": prices.output}
    texts = (f"{_format_dollars(price)} {name}" for name, price in amounts.items() if price is not None)
    return f"{', '.join(texts)} per 1M tokens"


def _find_warnings(model: Model) -> dict[str, str]:
    """Return why VS Code cannot use a model, or not well, as texts by the name of the reason."""
    if not model.capabilities.tools:
        return {"tools": "Not offered in the chat: VS Code requires models that call tools."}
    if model.limits.window < AGENT_PROMPT:
        return {"window": f"The agent's own prompt and tools take more than {model.limits.window:,} tokens."}
    return {}


def _format_dollars(price: Decimal) -> str:
    dollars = (price * MILLION).normalize()
    return f"${dollars:.2f}" if dollars == round(dollars, 2) else f"${dollars:f}"


def _encode_configuration(model: Model) -> wire.Configuration | None:
    """Return the schema of what the user can choose next to the model's name, or `None` for nothing."""
    sizes = _encode_context_sizes(model)
    # VS Code shows the chosen values next to the model's name, or the title of a schema if nothing is chosen.
    # In a narrow chat, the name disappears beside two values or a title, and stays beside one value.
    efforts = _encode_efforts(model.efforts, None if sizes else wire.DEFAULT_EFFORT)
    if efforts is None and sizes is None:
        return None
    return wire.Configuration(wire.ConfigurationProperties(efforts, sizes))


def _encode_efforts(efforts: tuple[str, ...], default: str | None) -> wire.Effort | None:
    if not efforts:
        return None
    choices = (wire.DEFAULT_EFFORT, *efforts)
    return wire.Effort(
        type="string",
        title="Thinking Effort",
        group="navigation",
        enum=choices,
        enum_item_labels=tuple(EFFORT_LABELS.get(effort, effort.capitalize()) for effort in choices),
        enum_descriptions=tuple(EFFORT_DESCRIPTIONS.get(effort, effort) for effort in choices),
        default=default,
    )


def _encode_context_sizes(model: Model) -> wire.ContextSize | None:
    """Return the schema of the context size: the longest prompt, after which VS Code summarises the chat."""
    sizes = model.context_sizes
    if not sizes:
        return None
    largest = sizes[-1]
    # The label of the largest size is the window, as models are advertised.
    window = model.context_size or model.limits.window
    return wire.ContextSize(
        type="number",
        title="Context Size",
        group="tokens",
        enum=sizes,
        enum_item_labels=(*map(_format_size, sizes[:-1]), _format_size(window)),
        enum_descriptions=(*("Summarise earlier, at lower cost" for _ in sizes[:-1]), "Longer sessions"),
        default=largest,
    )


def _format_size(tokens: int) -> str:
    """Return a number of tokens in thousands or millions, such as 200K or 1.1M."""
    if tokens >= MILLION:
        return f"{tokens / MILLION:.1f}".removesuffix(".0") + "M"
    return f"{tokens / 1000:.0f}K"
