"""`tollbridge serve`: a local HTTP server for editors and agents."""
