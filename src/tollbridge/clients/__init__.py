"""Clients: one per protocol. Each sends a request and returns the answer as events."""
