"""Runs workspaces as containers of one Docker engine."""
