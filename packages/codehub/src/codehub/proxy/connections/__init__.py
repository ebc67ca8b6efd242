"""One TCP connection on either side: clients, upstreams, and the tunnels of upgraded connections."""
