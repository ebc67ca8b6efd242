"""Archives in an object store: one library for files, S3 and others."""
