"""The list of conformance cases is what the tests say."""

from testing.proxy_docs import PAGE, page


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m testing.proxy_docs`"
