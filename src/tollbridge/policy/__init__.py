"""What is known about providers and their models: caching, clearing, output limits, thinking."""
