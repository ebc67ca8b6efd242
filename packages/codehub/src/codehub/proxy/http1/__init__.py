"""HTTP/1.1: parses message heads strictly, frames bodies, rewrites headers."""
