"""Protocol codecs: bytes in, values out, and back. Pure functions and decoders; no I/O."""
