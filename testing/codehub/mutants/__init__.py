"""Small bugs, planted one at a time, that a test must detect (`make mutants`)."""
