"""Convert a response body to editor parts. The body is a recording of a real server.

python examples/adapt_a_stream.py [FILE]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tollbridge import OpenResponsesStreamAdapter

RECORDING = Path(__file__).parent.parent / "tests/recordings/openresponses/litellm.parallel-stream.sse"


async def body(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(1000):
            yield chunk


async def main(path: Path) -> None:
    adapter = OpenResponsesStreamAdapter()
    result = await adapter.process_stream(body(path), print)
    print(result.finish_reason, result.usage)


asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING))
