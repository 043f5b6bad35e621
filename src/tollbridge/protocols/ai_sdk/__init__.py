"""The protocols of Vercel's AI SDK, versions 4 to 7.

    wire      typed deltas, and functions that read the fields of a chunk
    requests  messages to ModelMessages, UIMessages and language-model calls
    stream    response bytes to events, for the four protocols; parses the bytes to chunks
    chunks    one handler per chunk type, which applies a chunk to the state; used by `stream`
    state     the state of one stream: deltas, tool calls, usage, errors; used by `chunks`

The decoders look at the fields of a chunk, never at a version number, because patch releases changed the
format.
"""
