"""TCP connections on both sides: clients, upstreams, and tunnels of upgraded connections."""
