"""Measure how late the event loop is, and end the process when the loop is frozen.

An editor can start the sidecar again, but it cannot stop a request of a process that does not react. So a
frozen process ends itself, after it has written to the log where each of its threads is.

There are two ways for a loop to freeze, and no single mechanism notices both:

1.  A call holds the interpreter's lock, such as a regular expression with exponential backtracking. No Python
    code runs in any thread, so nothing written in Python can notice it. But such a call uses the processor.
    The operating system's timer of processor time (`ITIMER_PROF`) sends `SIGPROF`, `faulthandler` writes the
    position of each thread from C, and the signal then ends the process. Every heartbeat sets the timer back.
2.  The loop waits for something that is not asynchronous, such as a lock or a file. It uses no processor
    time, so the timer does not run, but other threads do. The main thread wakes up once a second and counts
    the time in which the number of heartbeats has not changed.

Both count only time in which the process could run. `faulthandler.dump_traceback_later`, which was tried
first, counts time on the clock: it ended healthy processes after `SIGSTOP`, in a paused container, and after
a laptop's sleep. It is used only on Windows, which has no timer of processor time. For the same reason the
main thread counts its own wake-ups and does not compare times: a process that was suspended for an hour has
missed one wake-up.

The supervision starts when the handlers are loaded, because their imports can take seconds on a cold disk.
docs/decisions/control-before-data.md has the measurements.
"""

from __future__ import annotations

import os
import sys
import time

from tollbridge.frontends.stdio.errors import log
from tollbridge.frontends.stdio.limits import LIMITS

EXIT_FROZEN = 3


class Heartbeat:
    """Measures how much later than planned the event loop runs a task.

    The properties can be read in any thread, also while the loop is blocked.
    """

    def __init__(self) -> None:
        self.count = 0
        self._due: float | None = None
        self._lag = 0.0
        # For each second of the last minute, by the second modulo 60: the time in seconds, and the longest
        # lag in it.
        self._longest = [(-LIMITS.lag_period, 0.0)] * LIMITS.lag_period

    @property
    def lag(self) -> float:
        """How late the last heartbeat was, or the next one is by now, in seconds."""
        overdue = 0.0 if self._due is None else time.monotonic() - self._due
        return max(self._lag, overdue)

    @property
    def longest_lag(self) -> float:
        """The longest lag of the last minute, in seconds."""
        oldest = int(time.monotonic()) - LIMITS.lag_period
        return max([self.lag, *(lag for second, lag in self._longest.copy() if second > oldest)])

    def plan(self, interval: float) -> None:
        self._due = time.monotonic() + interval

    def beat(self) -> None:
        now = time.monotonic()
        self._lag = 0.0 if self._due is None else max(0.0, now - self._due)
        index = int(now) % LIMITS.lag_period
        second, longest = self._longest[index]
        self._longest[index] = int(now), self._lag if second != int(now) else max(self._lag, longest)
        self.count += 1


class Watchdog:
    """Ends the process when the event loop does not run for `LIMITS.freeze_seconds`."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._seen = 0
        self._missed = 0.0

    def arm(self) -> None:
        """Start the timer, or restart it after a heartbeat."""
        import faulthandler
        import signal

        if sys.platform == "win32":
            faulthandler.dump_traceback_later(LIMITS.freeze_seconds, exit=True, file=2)
            return
        if not self._heartbeat.count:
            faulthandler.register(signal.SIGPROF, file=2, all_threads=True, chain=True)  # chain: and end
        signal.setitimer(signal.ITIMER_PROF, LIMITS.freeze_seconds)

    def disarm(self) -> None:
        import faulthandler
        import signal

        if sys.platform == "win32":
            faulthandler.cancel_dump_traceback_later()
        else:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def check(self, seconds: float) -> None:
        """Count the time without a heartbeat. Called every few `seconds`, not in the loop's thread."""
        count = self._heartbeat.count
        self._missed = self._missed + seconds if count and count == self._seen else 0.0
        self._seen = count
        if self._missed > LIMITS.freeze_seconds:
            import faulthandler

            log("error", f"The event loop has not reacted for {LIMITS.freeze_seconds:g} s. The process ends.")
            faulthandler.dump_traceback(file=2, all_threads=True)
            os._exit(EXIT_FROZEN)
