"""The limits of the embedded gateway."""

from __future__ import annotations

import msgspec


class GatewayLimits(msgspec.Struct, frozen=True):
    """What one gateway accepts and keeps. A gateway of a long test run must not grow without limit.

    Attributes:
        body_size: The bytes of a request. Images and files of a conversation fit.
        requests: The received requests that tests can inspect, and the events that wait to be read.
        answers: The answers whose usage is counted; a load test sends tens of thousands.
        responses: The stored conversations that a request can continue.
        reasoning: The reasoning items, and the calls, that a strict gateway recognizes when they come back.
            Older ones are no longer accepted.
        prefixes: The prompt prefixes in the simulated prompt cache.
        searched_text: The characters of a request that is searched for words. A long text contains every
            word by chance.
    """

    body_size: int = 64 * 1024 * 1024
    requests: int = 1_000
    answers: int = 100_000
    responses: int = 1_000
    reasoning: int = 10_000
    prefixes: int = 200_000
    searched_text: int = 500


LIMITS = GatewayLimits()
