"""Anthropic's Messages API, version 2023-06-01, as a client and as a server.

wire      tables of names, typed deltas, usage, proofs of reasoning, model lists
requests  messages to request bodies
stream    response bytes to events
server    a caller's request body to a `ChatRequest`; events to a stream or to one JSON body
"""
