"""The OpenResponses protocol, release 2026-04-24, with the extensions of OpenAI's Responses API.

wire      event names, typed deltas, and tolerant access to JSON objects
requests  messages to request bodies
stream    response bytes to events
items     the state of the output items while they are streamed; used by `stream`
schema    request bodies as a server validates them
server    a caller's request body to a `ChatRequest`; events to a stream or to one response
"""
