"""OpenResponses streams to editor parts."""

from __future__ import annotations

from tollbridge.adapters.stream import StreamAdapter
from tollbridge.gateways.openresponses.decode import StreamDecoder


class OpenResponsesStreamAdapter(StreamAdapter):
    """Turns the events of an OpenResponses stream into parts: text, thinking, tool calls, data.

    The stream may be the bytes of the body as any HTTP library gives them, the events as parsed JSON, or what
    `OpenResponsesClient.stream` yields.
    """

    def __init__(self, enable_reasoning: bool = True) -> None:
        super().__init__(StreamDecoder, reasoning=enable_reasoning)
