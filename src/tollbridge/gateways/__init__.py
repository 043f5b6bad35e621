"""How gateways talk. Bytes in, values out: nothing here waits for anything."""
