"""Everything that speaks Vercel's AI SDK, in the versions met in the wild (ai 4 to 7).

    wire      the names and shapes as they travel, and where each fact is found in a chunk
    chunks    what each chunk does to the turn: `turn` with its `deltas`, `calls` and `toll`
    decode    the four protocols: bytes to chunks
    encode    editor messages to ModelMessages; `prompt` to the gateway's own form of them

The meaning of a chunk is read from its fields, never from a version number: patch releases
changed the dialect.
"""
