"""The reference pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from testing.docs.pages import DOCS, PAGES, commands


@pytest.mark.parametrize("name", PAGES)
def test_a_drawn_page_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: python -m testing.docs.pages"


@pytest.mark.parametrize(
    ("path", "command"), commands(), ids=lambda value: " ".join(value) if type(value) is tuple else ""
)
def test_every_command_says_how_it_is_used_by_an_example(path: tuple[str, ...], command: click.Command) -> None:
    assert f"codehub {' '.join(path)}" in (command.help or "").partition("Example")[2]


def test_an_invariant_that_is_cited_is_described() -> None:
    described = set(re.findall(r"^## (INV-\d+)$", (DOCS / "invariants.md").read_text(encoding="utf-8"), re.MULTILINE))
    repository = DOCS.parent
    sources = [
        *repository.glob("packages/*/**/*.py"),
        *repository.glob("packages/*/**/*.sql"),
        *repository.glob("testing/**/*.py"),
    ]
    cited = {name for source in sources for name in re.findall(r"INV-\d+", source.read_text(encoding="utf-8"))}
    assert {"INV-4", "INV-8", "INV-11"} <= cited
    assert cited <= described


@pytest.mark.parametrize("record", sorted((DOCS / "adr").glob("[0-9]*.md")), ids=lambda record: record.stem)
def test_a_decision_has_a_number_a_date_a_status_and_four_sections(record: Path) -> None:
    lines = record.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf"# {record.name[:4]}\. \S.*", lines[0])
    assert re.fullmatch(r"Date: \d{4}-\d\d-\d\d *", lines[2])
    assert re.fullmatch(r"Status: (?:accepted|proposed|superseded by .+)", lines[3])
    sections = [line for line in lines if line.startswith("## ")]
    assert sections == ["## Context", "## Decision", "## Consequences", "## Alternatives"]
