"""The outside world: HTTP and standard streams."""
