"""Front ends: each decodes what its caller sends, runs a turn, and encodes the events of the answer."""
