"""HTTP/1.1 on the wire: reads message heads strictly, frames bodies, rewrites headers."""
