"""What every adapter needs of a local file system, and the standard library does not have."""
