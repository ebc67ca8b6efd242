"""The reference pages are what the code says, and no page of docs points at something that is not there."""

from __future__ import annotations

import re

import click
import pytest

from testing.docs.pages import DOCS, PAGES, commands

OURS = (
    "getting-started",
    "how-it-works",
    "operating",
    "configuration",
    "cli",
    "troubleshooting",
    "a-day",
    "../README",
)


@pytest.mark.parametrize("name", PAGES)
def test_a_drawn_page_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: python -m testing.docs.pages"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [DOCS / f"{name}.md" for name in OURS]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} → {target}"


@pytest.mark.parametrize(
    ("path", "command"), commands(), ids=lambda value: " ".join(value) if type(value) is tuple else ""
)
def test_every_command_says_how_it_is_used_by_an_example(path: tuple[str, ...], command: click.Command) -> None:
    assert f"codehub {' '.join(path)}" in (command.help or "").partition("Example")[2]
