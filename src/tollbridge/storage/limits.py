"""The limits of what is stored: sizes, seconds and counts, each with its reason."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a store.

    Attributes:
        usage_rows: Rows of the usage table; the oldest are deleted. At about 150 bytes each, 30 MB.
        prefixes: Measured prefixes of prompts. This and the next four together stay well under 50 MB.
        measured: Measured messages and tool sets.
        learned: Learned weights.
        toolsets: Features of tool sets. They have a table of their own, so as not to displace weights.
        outcomes: Estimates and what was reported.
        lessons: Lessons about servers; those that were confirmed longest ago are deleted.
        expired_lessons: Seconds that an expired lesson is kept: the next success or error decides about it.
        prompts: Sent prompts, as digests. A prompt of 250,000 tokens takes 23 kB.
        candidates: How many of the newest prompts are compared with a new one.
        reports: Reports of what the prompt cache did, at 400 bytes each.
        trim_interval: Tables are trimmed at the first of every so many writes. The first write of a process
            trims too, because a short-lived process never reaches the second trim.
        spooled_rows: Usage rows kept in memory while they cannot be written, at about 1 kB each; the oldest
            are dropped.
        spooled_lessons: Changes of lessons kept in memory while they cannot be written.
        retry_seconds: Seconds until rows that could not be written are tried again, if nothing else is
            written before.
        busy_timeout: Seconds that a write waits for another process. A write takes 1 or 2 ms.
        closing_busy_timeout: The same while the store is being closed.
        closing_timeout: Seconds that closing takes at most. A user waits for it.
        heartbeat: Seconds between two notes that a process with reservations is alive. Frequent enough that
            the cost of an interrupted answer can be estimated from the last one.
        lock_grace: A lock file younger than this (seconds) is not removed: its process may be about to lock
            it.
    """

    usage_rows: int = 200_000
    prefixes: int = 150_000
    measured: int = 200_000
    learned: int = 1_000
    toolsets: int = 1_000
    outcomes: int = 20_000
    lessons: int = 1_000
    expired_lessons: float = 90 * 86_400.0
    prompts: int = 500
    candidates: int = 16
    reports: int = 5_000
    trim_interval: int = 500
    spooled_rows: int = 10_000
    spooled_lessons: int = 100
    retry_seconds: float = 5.0
    busy_timeout: float = 10.0
    closing_busy_timeout: float = 1.0
    closing_timeout: float = 1.5
    heartbeat: float = 2.0
    lock_grace: float = 60.0


LIMITS = Limits()
