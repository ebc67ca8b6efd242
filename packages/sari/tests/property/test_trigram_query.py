"""What a query needs of a file is never more than what a file that matches has."""

import re

from hypothesis import given
from hypothesis import strategies as st

from sari.index import trigram_query
from sari.index.trigram_query import TrigramQuery
from sari.index.trigrams import of_word, words

_literals = st.sampled_from(["foo", "bar", "a", "ab_1", "Klasse", "needle", " ", "é", r"\.", r"\-", "x9"])
_atoms = st.one_of(
    _literals,
    st.sampled_from(
        [r"\d", r"\w", ".", "[a-f]", "[^a]", r"[\]x]", "[]y]", r"\b", "^", "$", r"\s", r"\x41", r"\u0042"]
    ),
)
_quantifiers = st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{0,3}", "{1,}", "+?", "*?"])


def _grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    opened = st.sampled_from(["(", "(?:", "(?i:", "(?P<n>"])
    group = st.builds(lambda o, body, q: f"{o}{body})" + q, opened, inner, _quantifiers)
    choice = st.builds(lambda parts: "|".join(parts), st.lists(inner, min_size=2, max_size=3))
    return st.one_of(group, choice, st.builds(lambda parts: "".join(parts), st.lists(inner, min_size=1, max_size=3)))


_anchors = ("^", "$", r"\b")
_plain = st.builds(lambda a, q: a if a in _anchors else f"(?:{a})" + q, _atoms, _quantifiers)
_patterns = st.recursive(_plain, _grouped, max_leaves=8)
_texts = st.lists(
    st.sampled_from(["foo", "bar", "FOO", "ab_1", "KLASSE", "needle", " ", "é", ".", "-", "x9", "A", "B", "\n"]),
    max_size=12,
)


def _trigrams(text: bytes) -> set[int]:
    return {trigram for word in words(text) for trigram in of_word(word)}


def _satisfied(condition: TrigramQuery, trigrams: set[int]) -> bool:
    return condition.trigrams <= trigrams and all(
        any(_satisfied(one, trigrams) for one in alternatives) for alternatives in condition.either
    )


@given(_patterns, _texts)
def test_a_text_that_matches_holds_what_the_regex_needs(pattern: str, parts: list[str]) -> None:
    text = "".join(parts)
    try:
        compiled = re.compile(pattern, re.MULTILINE | re.IGNORECASE)
    except re.error:
        return
    if compiled.search(text):
        assert _satisfied(trigram_query.by_regex(pattern), _trigrams(text.encode()))


@given(st.text(min_size=1), st.text(), st.text())
def test_a_text_that_holds_a_literal_holds_what_it_needs(literal: str, before: str, after: str) -> None:
    text = (before + literal + after).encode("utf-8", "surrogatepass")
    assert _satisfied(trigram_query.by_literal(literal), _trigrams(text))


def test_characters_that_fold_to_letters_are_found() -> None:
    for text in ("10 \u212aelvin", "ma\u017fs"):
        word = "kelvin" if "elvin" in text else "mass"
        assert _satisfied(trigram_query.by_literal(word), _trigrams(text.encode()))


def test_what_is_not_understood_needs_nothing() -> None:
    for pattern in ("(?x)a b c", "foo(", "foo[", "foo\\", "(?<=foo)bar", "foo{a}", "(foo"):
        assert trigram_query.by_regex(pattern).matches_all


def test_a_needed_run_is_recognised() -> None:
    assert trigram_query.by_regex(r"class \w+Error\(").trigrams == trigram_query.by_literal("class Error").trigrams
    assert trigram_query.by_regex(r"\bfoo_bar+baz").trigrams == trigram_query.by_literal("foo_bar baz").trigrams
    assert len(trigram_query.by_regex("(foo|bar)quux").either) == 1
