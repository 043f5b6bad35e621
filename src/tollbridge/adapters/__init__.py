"""Streams of gateways to parts of editors."""
