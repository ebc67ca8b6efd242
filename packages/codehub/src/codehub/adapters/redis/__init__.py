"""Redis or Valkey, for hints and a write buffer.

While it is unavailable, nothing is lost and no workspace goes to sleep.
"""
