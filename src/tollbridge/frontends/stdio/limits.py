"""The limits of the sidecar: seconds, sizes and counts."""

from __future__ import annotations

import msgspec


class SidecarLimits(msgspec.Struct, frozen=True):
    """The limits of the sidecar, with the reason for each.

    Attributes:
        freeze_seconds: An event loop without a heartbeat for this long is frozen. The longest work that is
            done at once, a frame of 64 MiB on a slow machine, takes a few seconds.
        busy_interval: Seconds between two heartbeats while requests are running. It limits how precisely
            `status` shows the lag.
        idle_interval: The same without requests: an idle process should rarely wake up.
        lag_period: Seconds of which the longest lag is kept. A person who asks for the status has noticed a
            delay within the last minute.
        wake_seconds: How often the main thread, which reads, wakes up. A Ctrl-C just before it waits, and a
            loop that is blocked, are noticed then.
        loop_stop_seconds: For the event loop to close its connections when the process ends.
        count_stop_seconds: For the token count that is running when the process ends.
        output_stop_seconds: For the editor to read the last responses. Most editors have closed the pipe.
        switch_interval: Seconds after which a thread lets another one run; Python's default is 0.005. The
            loop decodes for a few milliseconds at a time: with a longer interval, the threads that read and
            write would rarely interrupt it.
        open_files: Sockets that the process should be able to open; some systems allow 256 by default.
        log_line_bytes: Of one log line. A pipe accepts a write of 4,096 bytes at once if it accepts any.
        log_fact_characters: Of each fact about a gateway's error in the log: the gateway chooses them.
        account_id_characters: Of the id of an editor's account, which is stored with every request.
        warm_models: How many models get their vocabulary loaded in advance; each takes about 40 MB.
        longest_retry: The longest delay before a retry, in seconds. Somebody looks at an editor and can
            decide: a longer one is an error with the seconds, not a silent delay.
        note_seconds: After how many seconds without an answer an editor adds a note to the chat. In between,
            and after the last one, only the seconds are updated.
        short_retry: A retry within so many seconds is not worth a note.
    """

    freeze_seconds: float = 20.0
    busy_interval: float = 0.1
    idle_interval: float = 2.0
    lag_period: int = 60
    wake_seconds: float = 1.0
    loop_stop_seconds: float = 2.0
    count_stop_seconds: float = 2.0
    output_stop_seconds: float = 1.0
    switch_interval: float = 0.0005
    open_files: int = 4096
    log_line_bytes: int = 4000
    log_fact_characters: int = 100
    account_id_characters: int = 100
    warm_models: int = 3
    longest_retry: float = 15.0
    note_seconds: tuple[int, ...] = (2, 10, 30, 60, 120, 300)
    short_retry: float = 1.0


LIMITS = SidecarLimits()
