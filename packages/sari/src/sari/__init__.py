"""sari: one local code-search daemon for every AI command-line tool."""

__version__ = "3.0.0"
