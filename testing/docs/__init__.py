"""Writes and checks the pages in docs/ that are generated from code or from real runs."""
