"""What the domain and the control plane need from the outside world: one small Protocol per file."""
