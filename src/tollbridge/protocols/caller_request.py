"""Decode requests of callers: the decoded request, and the base of the decoders of the protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from tollbridge.types.errors import RequestError
from tollbridge.types.media import UNKNOWN, detect_mime, split_data_url
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Origin,
    OutputFormat,
    Part,
    Role,
    Tool,
    part_digest,
)
from tollbridge.types.text import read_json

Json = dict[str, Any]

# The roles of OpenAI's protocols. Gateways differ in whether they accept "system" or "developer".
ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}
# The argument that holds the text of a custom tool, because other protocols have only functions.
CUSTOM_ARGUMENT = "input"
_KIND_NAMES: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    Mapping: "an object",
}


class CallerTool(msgspec.Struct, frozen=True):
    """How the caller declared a tool that is sent to the gateway as a function of another name or kind.

    The input of a `custom` tool is text and not an object.
    """

    name: str
    namespace: str | None = None
    custom: bool = False


class CallerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded request of a caller.

    Attributes:
        request: The request in the form that every protocol can encode.
        body: The request as it came. Answers repeat some of its options.
        stream: Whether the caller wants a stream, not one JSON object.
        tools: The tools that were renamed or converted, by the name in `request`.
        extra: The fields and tools of the body that only the caller's protocol has, as they came.
            `request.extra` has them as well if the gateway speaks this protocol.
        omissions: One sentence for each thing in the body that has no equivalent and was left out.
    """

    request: ChatRequest
    body: Mapping[str, Any] = {}
    stream: bool = False
    tools: Mapping[str, CallerTool] = {}
    extra: Mapping[str, Any] = {}
    omissions: tuple[str, ...] = ()


def name_type(value: object) -> str:
    """Return the JSON type of a value: `a string`. Errors name it, because the value may be a prompt."""
    if isinstance(value, bool):
        return "a boolean"
    names: dict[type, str] = {str: "a string", int: "a number", float: "a decimal number", list: "an array"}
    return "null" if value is None else names.get(type(value), "an object")


def invalid_field(path: str, expected: str, value: object = None) -> RequestError:
    """Return the error for a field with a wrong value. The message names the type of `value`, if given."""
    actual = "" if value is None else f", not {name_type(value)}"
    return RequestError(f"{path} must be {expected}{actual}.", status=400, code="invalid_type", param=path)


class RequestObject:
    """Strict access to an object in a request. `path` is its place there; empty for the body.

    Raises:
        RequestError: `raw` is not an object. Every method raises it for a field with a wrong type, with the
            path of the field in the message and as `param`.
    """

    __slots__ = ("path", "raw")

    def __init__(self, raw: object, path: str = "") -> None:
        if not isinstance(raw, Mapping):
            raise invalid_field(path or "The body", "an object")
        self.raw: Mapping[str, Any] = raw
        self.path = path

    def path_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Any:
        """Return a value of any type; `None` if it is missing."""
        return self.raw.get(name)

    def optional(self, name: str, kind: type) -> Any:
        """Return a value of a type of `_KIND_NAMES`; `None` if it is missing."""
        value = self.raw.get(name)
        is_valid = isinstance(value, (int, float) if kind is float else kind)
        if value is None or (is_valid and (kind is bool or not isinstance(value, bool))):
            return value
        raise invalid_field(self.path_of(name), _KIND_NAMES[kind], value)

    def text(self, name: str) -> str:
        """Return a required string."""
        value: str | None = self.optional(name, str)
        if value is None:
            raise invalid_field(self.path_of(name), "a string")
        return value

    def limit(self, name: str) -> int | None:
        """Return a whole number of at least 1; `None` if it is missing."""
        value: int | None = self.optional(name, int)
        if value is not None and value < 1:
            message = f"{name} must be at least 1, not {value}."
            raise RequestError(message, status=400, code="invalid_value", param=name)
        return value

    def inner(self, name: str) -> RequestObject:
        """Return an object, which is empty if it is missing."""
        return RequestObject(self.optional(name, Mapping) or {}, self.path_of(name))

    def list(self, name: str) -> list[Any]:
        """Return an array, which is empty if it is missing."""
        return self.optional(name, list) or []

    def objects(self, name: str) -> Iterator[RequestObject]:
        """Yield the objects of an array."""
        for index, item in enumerate(self.list(name)):
            yield RequestObject(item, f"{self.path_of(name)}[{index}]")


class RequestDecoder(ABC):
    """Decodes one request; see `CallerCodec.decode`. A subclass knows the messages and tools."""

    # Fields that only the protocol has, and whose omission is not listed: they do not change the answer.
    unlisted_fields: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, body: object, headers: Mapping[str, str], native: Origin | None) -> None:
        self._body = RequestObject(body)
        self._headers = headers
        self._native = native
        self._tools: dict[str, Tool] = {}
        self._caller_tools: dict[str, CallerTool] = {}
        self._cache_points: dict[str, Mapping[str, Any]] = {}
        self._omissions: set[str] = set()

    @abstractmethod
    def decode(self) -> CallerRequest: ...

    def _finish(self, request: ChatRequest, extra: Json) -> CallerRequest:
        """Return the decoded request. `extra` are the fields and tools that only this protocol has."""
        if self._native is not None:
            request = msgspec.structs.replace(request, extra=extra or None)
        else:
            for name in extra.keys() - self.unlisted_fields:
                self._omit(f"the field {name[:80]}: the gateway's protocol does not have it")
        return CallerRequest(
            request=request,
            body=self._body.raw,
            stream=bool(self._body.get("stream")),
            tools=self._caller_tools,
            extra=extra,
            omissions=tuple(sorted(self._omissions)),
        )

    def _omit(self, what: str) -> None:
        self._omissions.add(f"Left out {what}.")

    def _add_tool(
        self,
        tool: RequestObject,
        *,
        namespace: str | None = None,
        custom: bool = False,
        grammar: object = None,
    ) -> None:
        """Add a function, or a custom tool: a function whose only argument is the text."""
        name = tool.text("name")
        sent_name = join_name(name, namespace)
        description, parameters = str(tool.get("description") or ""), tool.get("parameters")
        if custom:
            properties = {CUSTOM_ARGUMENT: {"type": "string"}}
            parameters = {"type": "object", "properties": properties, "required": [CUSTOM_ARGUMENT]}
            if isinstance(grammar, Mapping) and isinstance(text := grammar.get("definition"), str):
                syntax = grammar.get("syntax", "")
                description += f"\n\nThe input must match this {syntax} grammar:\n{text}"
        if custom or namespace:
            self._caller_tools[sent_name] = CallerTool(name, namespace, custom)
        parameters = parameters if isinstance(parameters, Mapping) else None
        self._tools[sent_name] = Tool(sent_name, description, parameters)

    def _add_cache_point(self, options: object, part: Part) -> None:
        """Note that the caller wants the prompt to be cached up to a part, if it gives options for that."""
        if isinstance(options, Mapping) and options:
            self._cache_points[part_digest(part)] = dict(options)


def read_content(content: object, path: str) -> Iterator[RequestObject]:
    """Yield the parts of a content. A text is a content with one part.

    Raises:
        RequestError: The content is neither a text nor an array of objects.
    """
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise invalid_field(path, "a string or an array")
    for index, part in enumerate(content):
        yield RequestObject(part, f"{path}[{index}]")


def join_name(name: str, namespace: object) -> str:
    """Return the name of a tool in a namespace, for protocols that have no namespaces."""
    return f"{namespace.rstrip('_')}__{name}" if isinstance(namespace, str) and namespace else name


def read_data_url(url: object, name: object = None) -> DataPart | None:
    """Return the file in a data URL; `None` for a file's id and for other URLs, which are never fetched."""
    try:
        mime, data = split_data_url(url if isinstance(url, str) else "")
    except ValueError:
        return None
    mime = detect_mime(data, mime) if mime == UNKNOWN else mime
    return DataPart(data, mime, name if isinstance(name, str) else None)


def read_arguments(arguments: object) -> Any:
    """Return the arguments of a call: an object, or the text of what is no object."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        value = read_json(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def read_custom_input(arguments: object) -> str:
    """Return the text for a custom tool, from the arguments of the function that stands for it."""
    return str(arguments.get(CUSTOM_ARGUMENT, "") if isinstance(arguments, Mapping) else arguments)


def read_output_format(schema: RequestObject) -> OutputFormat:
    """Return a JSON schema that the answer must match."""
    return OutputFormat(
        name=schema.optional("name", str) or "answer",
        schema=schema.inner("schema").raw,
        description=schema.optional("description", str),
        strict=schema.optional("strict", bool),
    )
