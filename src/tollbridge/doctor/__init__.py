"""Server examination: test what a server can do, and derive its compatibility profile."""
