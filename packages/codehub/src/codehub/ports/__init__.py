"""What the domain and the control plane need of the world, one small Protocol a file."""
