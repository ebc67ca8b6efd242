"""Decides whether a request may reach a workspace, and what to answer otherwise."""
