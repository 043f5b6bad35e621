"""Profiles of servers: those that come with Tollbridge, and those that `tollbridge doctor` has written."""

from tollbridge.profiles.kept import UnreadableProfile, keep_profile, kept_profile, profile_file
from tollbridge.profiles.lookup import find_quirks
from tollbridge.profiles.profile import Profile, learned
from tollbridge.profiles.shipped import Known, known_quirks, known_server, known_servers

__all__ = [
    "Known",
    "Profile",
    "UnreadableProfile",
    "find_quirks",
    "keep_profile",
    "kept_profile",
    "known_quirks",
    "known_server",
    "known_servers",
    "learned",
    "profile_file",
]
