"""CodeHub: self-hosted development workspaces."""

__version__ = "0.1.0"
