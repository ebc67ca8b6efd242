"""Redis (or Valkey): hints and a write buffer. While it is away nothing is lost and nothing is put to sleep."""
