"""PostgreSQL and Valkey from wheels, run inside the data directory: CodeHub with nothing installed but Python.

Blocking code on purpose: starting and stopping a server is a handful of steps, used by `codehub up` and by test fixtures
alike.
"""
