"""Features of devcontainer.json from a registry, over the OCI distribution API. Answers are bounded and never trusted."""
