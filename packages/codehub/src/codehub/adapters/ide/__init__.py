"""IDEs for the process runtime: installed from their registries when first needed, checked against a lock file."""
