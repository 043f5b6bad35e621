"""Sockets and pipes: the HTTP client, its retry policy, and standard input and output."""
