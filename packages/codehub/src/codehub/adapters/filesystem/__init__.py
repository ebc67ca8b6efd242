"""File system functions that all adapters need and the standard library lacks."""
