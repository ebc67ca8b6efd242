"""Whether a request may reach a workspace, and which answer it gets instead."""
