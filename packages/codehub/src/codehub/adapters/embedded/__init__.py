"""Runs PostgreSQL and Valkey from wheels inside the data directory, so that CodeHub needs only Python.

The code is blocking on purpose: starting and stopping a server takes a handful of steps, and both `codehub up` and test
fixtures use it.
"""
