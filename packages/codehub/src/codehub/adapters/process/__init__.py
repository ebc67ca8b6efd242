"""Workspaces as processes: each IDE under a keeper of its own that outlives CodeHub."""
