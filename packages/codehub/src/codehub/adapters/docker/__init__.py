"""Workspaces as containers of one Docker engine."""
