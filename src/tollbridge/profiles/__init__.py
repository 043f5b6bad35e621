"""Profiles of servers: those that come with Tollbridge, and those that `tollbridge doctor` has written."""

from tollbridge.profiles.kept import UnreadableProfile, keep_profile, kept_profile, profile_file
from tollbridge.profiles.lookup import find_profile
from tollbridge.profiles.shipped import Known, known_profile, known_server, known_servers

__all__ = [
    "Known",
    "UnreadableProfile",
    "find_profile",
    "keep_profile",
    "kept_profile",
    "known_profile",
    "known_server",
    "known_servers",
    "profile_file",
]
