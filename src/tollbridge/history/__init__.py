"""Histories made legal: what a gateway would refuse is mended before it is sent, and said."""

from tollbridge.history.sanitise import Sanitised, sanitise
from tollbridge.history.target import Target

__all__ = ["Sanitised", "Target", "sanitise"]
