"""`python -m tollbridge` is `tollbridge`."""

from __future__ import annotations

import signal

# Until the program stands, Ctrl-C ends it without a word: the interpreter would show where its imports were.
_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _interruptible:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from tollbridge.cli import main as run  # noqa: E402


def main() -> None:
    if _interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
