"""Shared types: messages, events, models, usage, errors, quirks. Imports no other package of ours."""
