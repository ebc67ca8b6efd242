"""The planted bugs of `make mutants` still fit the source: each text is there once, and what it becomes is Python."""

from __future__ import annotations

import ast

import pytest

from testing.codehub.mutants.boundaries import BOUNDARIES
from testing.codehub.mutants.catalog import MUTANTS, ROOT, Mutant, mutated


@pytest.mark.parametrize("mutant", [*MUTANTS, *BOUNDARIES], ids=lambda mutant: mutant.name)
def test_a_planted_bug_can_be_planted_and_names_tests_that_exist(mutant: Mutant) -> None:
    ast.parse(mutated(mutant))
    for test in mutant.tests:
        path, *names = test.split("::")
        assert f"def {names[-1] if names else ''}" in (ROOT / path).read_text(encoding="utf-8")
