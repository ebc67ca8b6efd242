"""Runs workspaces as processes: each IDE has its own supervisor, which outlives CodeHub."""
