"""Workspaces as processes: each IDE under a supervisor of its own that outlives CodeHub."""
