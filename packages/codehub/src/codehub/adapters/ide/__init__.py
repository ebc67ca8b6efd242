"""IDEs for the process runtime: installed on first need, from their registries, checked against a lock file."""
