from __future__ import annotations

from testing.docs.api import PAGE, page


def test_the_api_page_says_what_the_api_describes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m testing.docs.api`"
