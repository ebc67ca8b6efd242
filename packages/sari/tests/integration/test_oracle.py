"""sari finds exactly what ripgrep finds, on real trees and on a hostile one, fresh and as they change."""

import random
from pathlib import Path

import pytest

from sari.index.search import Query
from testing.sari import trees
from testing.sari.indexes import Open
from testing.sari.oracle import differences, queries


@pytest.mark.timeout(900)
def test_on_a_hostile_tree_every_line_is_ripgreps(tmp_path: Path, open_index: Open) -> None:
    root = trees.hostile(tmp_path / "tree")
    sample = queries(random.Random(1), root, 120)
    sample += [Query(text, *how) for text in _NASTY for how in (("literal", "smart"), ("regex", "insensitive"))]
    index = open_index(root)
    assert index.wait_listed(120)
    assert differences(index, root, sample[:8], trees.LATE_NULS) == []
    assert index.wait_settled(120)
    assert differences(index, root, sample, trees.LATE_NULS) == []


_NASTY = [
    "needle",
    "NEEDLE",
    "kelvin",
    "mass",
    "Straße",
    "café",
    "é",
    "needle\nneedle",
    "a",
    "  ",
    "e$",
    "needle here",
    "\\.",
    "needle tail",
]


@pytest.mark.timeout(900)
def test_on_the_python_library(tmp_path: Path, open_index: Open) -> None:
    root = trees.python_library(tmp_path / "tree")
    index = open_index(root)
    sample = queries(random.Random(2), root, 80)
    assert differences(index, root, sample[:3]) == []
    assert index.wait_settled(120)
    assert differences(index, root, sample) == []


@pytest.mark.timeout(900)
@pytest.mark.needs("npm")
def test_on_a_large_node_modules(tmp_path: Path, open_index: Open) -> None:
    root = trees.node_modules(tmp_path / "tree")
    index = open_index(root)
    sample = queries(random.Random(3), root, 80)
    assert index.wait_settled(120)
    assert differences(index, root, sample) == []
