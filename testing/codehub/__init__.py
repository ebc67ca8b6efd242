"""Shared parts of CodeHub's tests: real services, contract suites, twins, the simulation."""
