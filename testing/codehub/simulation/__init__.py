"""The real control code on a virtual clock, in a world of faults: seeded, repeatable, with invariants after every step."""
