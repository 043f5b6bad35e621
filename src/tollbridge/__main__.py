"""Run the command line with `python -m tollbridge`."""

from __future__ import annotations

import signal

# During the imports, Ctrl-C ends the process silently; the interpreter's own handler would print a traceback
# of the import that was interrupted.
_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _interruptible:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from tollbridge.cli import main as run  # noqa: E402


def main() -> None:
    """Restore the Ctrl-C handler and run the command line."""
    if _interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
