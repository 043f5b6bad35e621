"""The outside world: sockets and pipes."""
