"""Clients: each asks a gateway in one protocol, and hands on its answer as events."""
