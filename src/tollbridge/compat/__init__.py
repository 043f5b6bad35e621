"""Compatibility: what a server or model does not accept, and how to repair a rejected request."""
