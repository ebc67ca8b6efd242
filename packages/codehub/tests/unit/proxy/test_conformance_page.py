"""The list of conformance cases is what the tests say."""

from testing.docs.proxy_conformance import PAGE, page


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m testing.docs.proxy_conformance`"


def test_a_case_that_also_runs_against_nginx_says_so() -> None:
    assert "| empty lines before a request are skipped (3 cases) | same |" in page().splitlines()
