"""The Chat Completions protocol of OpenAI, with the extensions of the servers that imitate it.

wire      typed text chunks, the names of reasoning fields, finish reasons, usage
requests  messages to request bodies
stream    response bytes to events
server    a caller's request body to a `ChatRequest`; events to chunks or to one JSON body
"""
