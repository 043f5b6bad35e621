"""How editors talk. Bytes in, values out; nothing here waits."""
