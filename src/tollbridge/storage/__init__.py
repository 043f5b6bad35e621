"""Persistent storage: one SQLite file, shared by all processes of a user."""
