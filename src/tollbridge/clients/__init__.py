"""Clients, one per protocol: each sends a request and returns the answer as events."""
