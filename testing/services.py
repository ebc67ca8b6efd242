"""Real services for tests: PostgreSQL and Valkey, one of each per test worker."""
