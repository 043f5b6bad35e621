"""Deprecated alias of `tollbridge.types`, with the module names of the first release."""

import sys

from tollbridge.types import errors, events, messages, models, quirks

for _module in (errors, events, messages, models, quirks):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
usage = sys.modules[f"{__name__}.usage"] = events
