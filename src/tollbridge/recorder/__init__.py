"""Recordings of turns: writing, redacting, reading and replaying them. There is one file per turn."""
