"""Benchmarks of token counting: speed, equality with other tokenizers, accuracy, size of the database."""
