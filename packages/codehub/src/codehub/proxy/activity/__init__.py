"""What counts as a person at work: background traffic is told apart, the rest is buffered and flushed."""
