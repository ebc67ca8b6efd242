"""Contract suites: one per port, run against every implementation of it."""
