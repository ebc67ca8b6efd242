"""Checks the links of the Markdown files in this repository: every relative target and every anchor must exist.

Works on the sources, without building the site, so that it is fast enough for every test run. Anchors follow GitHub's
rule, which is also the rule that `mkdocs.yml` sets for the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_PARSER: Final = MarkdownIt("commonmark").enable("table")
_PAGES: Final = ("*.md", "docs/**/*.md", "packages/*/*.md", "bench/**/*.md", "deploy/**/*.md", "images/**/*.md")
_NOT_IN_ANCHOR: Final = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class Link:
    """One link or image in a page."""

    page: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}: {self.target}"


def pages() -> list[Path]:
    """Return every Markdown file of the repository, except those of tools that are installed into it."""
    return sorted(page for pattern in _PAGES for page in REPOSITORY.glob(pattern))


def links(page: Path) -> Iterator[Link]:
    for token in _tokens(page):
        for child in token.children or ():
            target = child.attrGet("href") if child.type == "link_open" else child.attrGet("src")
            if isinstance(target, str):
                yield Link(page, (token.map or [0])[0] + 1, target)


def problem(link: Link) -> str | None:
    """Return the problem with a link, or None. Links to other hosts are not followed."""
    parts = urlsplit(link.target)
    if parts.scheme or parts.netloc:
        return None
    path = (link.page.parent / unquote(parts.path)).resolve() if parts.path else link.page
    if not path.is_relative_to(REPOSITORY):
        return "leads out of the repository"
    if not path.exists():
        return "does not exist"
    if parts.fragment and path.suffix == ".md" and unquote(parts.fragment) not in anchors(path):
        return f"has no heading for #{parts.fragment}"
    return None


def anchor(heading: str) -> str:
    """Return GitHub's anchor of a heading's text."""
    return _NOT_IN_ANCHOR.sub("", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    tokens = _tokens(page)
    headings = [tokens[at + 1] for at, token in enumerate(tokens) if token.type == "heading_open"]
    found: set[str] = set()
    for heading in headings:
        base = anchor("".join(child.content for child in heading.children or ()))
        name, number = base, 0
        while name in found:
            number += 1
            name = f"{base}-{number}"
        found.add(name)
    return frozenset(found)


@cache
def _tokens(page: Path) -> list[Token]:
    return _PARSER.parse(page.read_text(encoding="utf-8"))
