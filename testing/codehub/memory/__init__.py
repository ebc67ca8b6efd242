"""In-memory twins of the backends, for the simulation. Each passes the contract suite of the real one."""
