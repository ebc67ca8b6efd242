"""Homes: where users' files are kept, completely or not at all."""
