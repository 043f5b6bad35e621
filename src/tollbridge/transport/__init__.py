"""I/O: the HTTP client, its retry policy, and standard input and output."""
