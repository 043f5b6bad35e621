"""Tollbridge: the bridge between editors and AI gateways."""
