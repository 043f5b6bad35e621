"""The optional fields of a request: which one an error is about, and which are not sent.

The `param` of an error comes first, then the names in its message. Fields that change privacy or the meaning
of the answer (`store`, `tool_choice`, the answer's format, the output limit, and everything the caller added)
are only found if the error clearly calls them unsupported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial

from tollbridge.types.errors import BridgeError
from tollbridge.types.messages import ChatRequest
from tollbridge.types.quirks import Quirks

PARAMETER_CODES = frozenset(
    {"unsupported_parameter", "unsupported_value", "unknown_parameter", "invalid_parameter"}
)
_REJECTION = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated|not (?:supported|permitted|allowed|accepted)"
    r"|not available|only supported|only the default|does(?:n't| not) (?:support|accept|allow)|is invalid"
    r"|extra (?:inputs|fields|parameters)|additional propert|invalid (?:value|parameter|argument)",
    re.IGNORECASE,
)

# The fields that request prompt caching. The answer is the same without them.
_CACHE_FIELDS = ("cache_control", "caching", "prompt_cache_key")


def _requests_caching(field: str, request: ChatRequest) -> bool:
    if _has_extra(request, field):
        return True
    if field == "cache_control" and request.cache_points:
        return True
    return request.cache_prompt and request.quirks is not None and field in request.quirks.cache_fields


# The optional fields of a request body, each with a test whether a request has it. The model, the messages,
# the tools and the output format are not optional.
OPTIONAL_FIELDS: Mapping[str, Callable[[ChatRequest], bool]] = {
    "temperature": lambda request: request.temperature is not None,
    "top_p": lambda request: request.top_p is not None,
    "max_output_tokens": lambda request: request.max_output_tokens is not None,
    "reasoning": lambda request: bool(request.reasoning_effort or request.reasoning_summary),
    "include": lambda request: bool(
        request.reasons
        or request.reasoning_effort
        or request.reasoning_summary
        or _has_extra(request, "include")
    ),
    "metadata": lambda request: bool(request.metadata),
    "parallel_tool_calls": lambda request: request.parallel_tool_calls is not None,
    "tool_choice": lambda request: request.tool_choice is not None,
    "store": lambda _request: True,
    "stream_options": lambda _request: True,  # of Chat Completions
    **{name: partial(_requests_caching, name) for name in _CACHE_FIELDS},
}
# Other names of these fields, in errors that a gateway forwards from a provider.
FIELD_ALIASES: Mapping[str, str] = {
    "topP": "top_p",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "maxOutputTokens": "max_output_tokens",
    "reasoning_effort": "reasoning",
    "reasoningEffort": "reasoning",
    "reasoning.effort": "reasoning",
    "reasoning.summary": "reasoning",
    "thinking": "reasoning",
    "reasoning.encrypted_content": "include",
    "encrypted content": "include",
    "toolChoice": "tool_choice",
}


# Fields that change privacy or the meaning of the answer. They are omitted only if the error says clearly
# that the server does not know them, and every turn without them says so.
SENSITIVE_FIELDS: Mapping[str, str] = {
    "store": "Removed store=false: not supported by this server. It may keep prompts and answers.",
    "tool_choice": "Removed tool_choice: not supported by this server. The model may call any tool or none.",
    "max_output_tokens": "Removed max_output_tokens: not supported by this server. Answers can be longer.",
    "text": "Removed text: not supported by this server. The answer may have another format.",
    "response_format": (
        "Removed response_format: not supported by this server. The answer may have another format."
    ),
}
SENSITIVE_NOTES = frozenset(SENSITIVE_FIELDS.values())
# The codes by which a server says that it does not know a parameter at all. With other codes, the server
# knows it and rejects its value: without `store=false`, such a server would keep the prompt.
_UNKNOWN_CODES = frozenset({"unsupported_parameter", "unknown_parameter"})
# Words of errors about a value, or about a combination of fields.
_CONDITION = re.compile(
    r"\b(?:values?|when|while|if|unless|only|requires?|together|combination)\b", re.IGNORECASE
)
# Parameters whose errors are about the content of the request.
_CONTENT_PARAMS = frozenset({"input", "messages", "instructions", "tools", "model", "prompt"})


def refused_fields(error: BridgeError, request: ChatRequest) -> list[str]:
    """Return the optional fields of a request that an error is about.

    The error's `param` takes precedence over the field names in its message. A field that changes privacy or
    meaning is only returned if the error says that the server does not support it.
    """
    if error.code not in PARAMETER_CODES and not _REJECTION.search(error.message):
        return []
    names = _field_names(request)
    error_field = param_field(error, request)
    if error_field is not None:
        fields = [error_field]
    elif re.split(r"[\[.]", error.param or "")[0] in _CONTENT_PARAMS:
        fields = []
    else:
        fields = list(dict.fromkeys(names[name] for name in names if _mentions(error.message, name)))
    return [
        field
        for field in fields
        if has_field(request, field)
        and (field in OPTIONAL_FIELDS.keys() - SENSITIVE_FIELDS or _is_unsupported(field, error, names))
    ]


def _field_names(request: ChatRequest) -> dict[str, str]:
    """Return the names that an error can use for the fields of a request, with the name of the field."""
    return {**{name: name for name in (*OPTIONAL_FIELDS, *(request.extra or {}))}, **FIELD_ALIASES}


def param_field(error: BridgeError, request: ChatRequest) -> str | None:
    """Return the field that the error names as its `param`."""
    names, param = _field_names(request), error.param or ""
    return names.get(param) or names.get(re.split(r"[\[.]", param)[0])


def _is_unsupported(field: str, error: BridgeError, names: Mapping[str, str]) -> bool:
    """Return whether an error says clearly that the server does not support a field."""
    aliases = [name for name in names if names[name] == field]
    if (error.param or "") in aliases and (error.code in _UNKNOWN_CODES or field == "tool_choice"):
        return True
    if _CONDITION.search(error.message):
        return False
    return any(_unsupported_pattern(name).search(error.message) for name in aliases)


@lru_cache(64)
def _unsupported_pattern(name: str) -> re.Pattern[str]:
    """Match sentences that call a parameter unsupported; to mention it is not enough."""
    kind = r"(?:(?:parameter|argument|field|option|key|input)(?:s|\(s\))?|property|properties)"
    name = re.escape(name)
    in_list = rf"[\s:\[('\"`]{{0,6}}(?:[\w.]{{1,40}}['\"`]?, ?['\"`]?){{0,8}}(?:body\.)?{name}(?!\w|\.\w)"
    not_allowed = r"not (?:supported|permitted|allowed|accepted|available|recogni[sz]ed)"
    unknown = r"(?:unsupported|unknown|unrecogni[sz]ed|unexpected)"
    return re.compile(
        rf"\b(?:{unknown}|extra|additional) (?:\w{{1,12}} )?{kind}(?: (?:supplied|provided))?{in_list}"
        rf"|(?:{kind}) (?:are |is )?{not_allowed}(?: at| by this model)?{in_list}"
        rf"|does(?:n't| not) (?:support|accept|allow|recogni[sz]e) (?:the )?(?:{kind})?{in_list}"
        rf"|(?<![\w.]){name}['\"`]?(?: {kind})? is (?:{not_allowed}|{unknown})"
        rf"|(?<![\w.]){name}['\"`]?: (?:extra inputs|{unknown})",
        re.IGNORECASE,
    )


def names_a_parameter(error: BridgeError) -> bool:
    """Tell the parameter `reasoning` from the input item of that name, by the words of the error."""
    if error.code in PARAMETER_CODES:
        return True
    return re.search(r"\b(?:parameter|argument)s?\b", error.message, re.I) is not None


def omitted_fields(request: ChatRequest, quirks: Quirks) -> list[str]:
    """Return the fields of a request that are not sent because of the quirks.

    `stream_options` only asks for the usage of a stream, so its omission is of no interest to users. Nor is
    that of caching which the caller did not ask for.
    """
    own = {field for field in _CACHE_FIELDS if not _has_extra(request, field)}
    omitted = quirks.without - {"stream_options"} - own
    return sorted(field for field in omitted if has_field(request, field))


def describe_omissions(fields: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each field that is not sent."""
    return tuple(
        SENSITIVE_FIELDS.get(field, f"Removed {field}: not supported by this server.") for field in fields
    )


def _mentions(message: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w|\.\w)", message, re.IGNORECASE) is not None


def has_field(request: ChatRequest, name: str) -> bool:
    """Return whether a field of the request body would be sent."""
    if name == "text" and request.output_format is not None:
        return True
    return OPTIONAL_FIELDS[name](request) if name in OPTIONAL_FIELDS else _has_extra(request, name)


def _has_extra(request: ChatRequest, name: str) -> bool:
    return name in (request.extra or {})
