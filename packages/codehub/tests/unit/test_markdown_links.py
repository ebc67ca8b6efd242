"""Links between the pages of this repository lead somewhere, headings included."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.docs.links import REPOSITORY, Link, anchor, links, pages, problem


def test_every_relative_link_and_anchor_exists() -> None:
    found = [link for page in pages() for link in links(page)]
    assert len(found) > 100, "the pages were not found"
    broken = [f"{link} {wrong}" for link in found if (wrong := problem(link)) is not None]
    assert broken == []


@pytest.mark.parametrize("package", ["codehub", "sari"])
def test_a_readme_shown_on_pypi_has_no_relative_links(package: str) -> None:
    readme = REPOSITORY / "packages" / package / "README.md"
    assert [str(link) for link in links(readme) if "://" not in link.target] == []


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        ("page.md", None),
        ("page.md#a-heading-twice", None),
        ("page.md#a-heading-twice-1", None),
        ("page.md#a-heading-thrice", "has no heading for #a-heading-thrice"),
        ("missing.md", "does not exist"),
        ("../../../../../../../../../etc/passwd", "leads out of the repository"),
        ("https://example.org/missing", None),
    ],
)
def test_what_is_wrong_with_a_link_is_reported(
    target: str, wrong: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testing.docs.links.REPOSITORY", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# A `heading` twice\n\n## A heading, twice\n")
    assert problem(Link(page, 1, target)) == wrong


def test_links_in_code_are_not_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`[a](missing.md)`\n\n```text\n[b](missing.md)\n```\n\n[c](there.md) ![d](image.png)\n")
    assert [link.target for link in links(page)] == ["there.md", "image.png"]


def test_an_anchor_is_what_github_makes_of_a_heading() -> None:
    assert anchor("What's new in `codehub up` — and sari?") == "whats-new-in-codehub-up--and-sari"
