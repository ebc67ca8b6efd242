"""The real control code on a virtual clock with injected faults: seeded, repeatable, with invariants after every step."""
