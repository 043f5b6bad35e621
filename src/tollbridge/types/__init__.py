"""Shared types: messages, events, models, usage, errors, quirks. Imports nothing else of Tollbridge."""
