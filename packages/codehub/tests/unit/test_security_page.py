"""docs/security.md names the test of each line, and each of those tests exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "security.md"
ROOT = PAGE.parent.parent
TEXT = PAGE.read_text(encoding="utf-8")
# Folders whose tests a line may name by their last parts alone.
PLACES = ("e2e", "packages/codehub/tests", "packages/sari/tests")
NAMED = re.compile(r"`((?:[\w/]+/)?test_\w+\.py)`")


def files(name: str) -> list[Path]:
    return [found for place in PLACES for found in (ROOT / place).rglob(Path(name).name) if found.match(name)]


def rows() -> list[tuple[str, str]]:
    """Return (attack, test) of each row of the tables of attacks."""
    found = []
    for table in re.findall(r"^\| attack \| protection \| test \|\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE):
        for line in table.splitlines():
            attack, _, test = (cell.strip() for cell in line.strip("|").rsplit("|", 2))
            found.append((attack, test))
    return found


@pytest.mark.parametrize("name", sorted(set(NAMED.findall(TEXT))))
def test_a_test_that_the_page_names_exists_once(name: str) -> None:
    assert len(files(name)) == 1, files(name)


def test_each_attack_of_each_table_names_its_test() -> None:
    found = rows()
    assert len(found) > 40, "the tables were not found"
    assert [attack for attack, test in found if not NAMED.search(test)] == []


def test_no_table_of_attacks_is_without_a_test_column() -> None:
    heads = re.findall(r"^\| attack \|.*$", TEXT, re.MULTILINE)
    assert heads
    assert set(heads) == {"| attack | protection | test |"}
