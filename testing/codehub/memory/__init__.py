"""In-memory twins of the backends, for the simulation: each passes the contract suite of the real one."""
