"""Encode what requests of several protocols have in common: texts, files, tools and arguments of calls."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from tollbridge.types.errors import RequestError
from tollbridge.types.media import detect_mime, is_text
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    NamedTool,
    OutputFormat,
    Part,
    TextPart,
    Tool,
    ToolChoice,
)
from tollbridge.types.text import read_json, write_valid_json

Json = dict[str, Any]

# Marks a failed tool result in protocols that have no error flag.
ERROR_PREFIX = "Error: "


def omit_none(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def extract_text(part: Part) -> str | None:
    """Return the text of a text part or of a text file; `None` for other parts.

    The media type is detected from the bytes: editors label PNG as JPEG.
    """
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, DataPart) and is_text(detect_mime(part.data, part.mime)):
        return part.data.decode("utf-8", "replace")
    return None


def extract_system_text(part: Part) -> str:
    """Return the text of a part of a system message.

    Raises:
        RequestError: The part is neither text nor a text file.
    """
    text = extract_text(part)
    if text is None:
        content_type = part.mime if isinstance(part, DataPart) else type(part).__name__
        raise RequestError(f"A system message can only contain text; {content_type} cannot be sent in it.")
    return text


def data_url(part: DataPart, mime: str) -> str:
    return f"data:{mime};base64,{b64encode(part.data).decode()}"


def encode_file(part: DataPart, mime: str) -> Json:
    filename = part.name or f"file.{mime.rpartition('/')[2].partition('+')[0] or 'bin'}"
    return {"filename": filename, "file_data": data_url(part, mime)}


def write_arguments(arguments: Any) -> str:
    """Return the JSON text of an object, which servers parse. Other values are wrapped in an object."""
    if isinstance(arguments, str):
        try:
            value = read_json(arguments)
            if isinstance(value, dict):  # unchanged, unless it can contain an escaped lone surrogate
                return write_valid_json(value) if "\\ud" in arguments.lower() else arguments
        except ValueError:
            pass
    if arguments is None or arguments == "":
        arguments = {}
    try:
        return write_valid_json(arguments if isinstance(arguments, Mapping) else {"input": arguments})
    except ValueError as error:
        raise RequestError(f"The arguments of a tool call cannot be sent: {error}.") from None


def describe_tool(tool: Tool, schema_field: str = "parameters") -> Json:
    """Return the name, the description and the parameters of a tool."""
    schema = dict(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    return {"name": tool.name, **omit_none(description=tool.description or None), schema_field: schema}


def check_tool_choice(request: ChatRequest) -> ToolChoice | None:
    """Return the tool choice of a request.

    Raises:
        RequestError: It names a tool that the request does not have.
    """
    choice = request.tool_choice
    if isinstance(choice, NamedTool) and all(tool.name != choice.name for tool in request.tools):
        raise RequestError(f'Tool choice "{choice.name}" is not one of the tools of the request.')
    return choice


def describe_format(output_format: OutputFormat) -> Json:
    """Return the name, the options and the schema of an output format."""
    options = omit_none(description=output_format.description, strict=output_format.strict)
    return {"name": output_format.name, **options, "schema": dict(output_format.schema)}
