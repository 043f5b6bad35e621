"""Anthropic's Messages API, version 2023-06-01, as a client and as a server.

wire      tables of names, typed deltas, usage, proofs of reasoning, model lists
requests  `ChatRequest` to request bodies
stream    response bytes to events
callers   request bodies of callers to `ChatRequest`
answers   events to streams, bodies and errors for callers
"""
