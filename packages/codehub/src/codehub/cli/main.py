"""The `codehub` command."""


def main() -> int:
    """Begin here; the commands come with their issues."""
    return 0
