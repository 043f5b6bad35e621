"""What every test may rely on."""

from __future__ import annotations

import os
import signal

from tests.apart import PLACES

os.environ.update(PLACES)

# What a shell starts in the background ignores Ctrl-C, and so would the programs that tests press it for.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
