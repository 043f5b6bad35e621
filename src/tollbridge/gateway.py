"""Deprecated alias of `tollbridge.testing`, with the names of the first release."""

from tollbridge import testing
from tollbridge.testing import *  # noqa: F403
from tollbridge.testing import AcceptedRequest as Turn
from tollbridge.testing import CannedReply as Reply
from tollbridge.testing import FaultSettings as Settings
from tollbridge.testing import ReceivedRequest as Arrival
from tollbridge.testing import ScriptedAnswer as Answer

__all__ = [*testing.__all__, "Answer", "Arrival", "Reply", "Settings", "Turn"]
