"""What tools and hosts add to a commit message is no part of it."""

import pytest

from sari.ranking.file_history import FIELD, RECORD, parse_log
from sari.ranking.question import read_question
from sari.ranking.terms import count_terms
from sari.ranking.trailers import without_trailers

_TRAILERS = "RELNOTES=n/a\nPiperOrigin-RevId: 941516950\n"


@pytest.mark.parametrize(
    ("message", "prose"),
    [
        (f"Expire sessions\n\n{_TRAILERS}", "Expire sessions"),
        (f"Expire sessions\n\nThey stayed.\n\nFixes: #12\n\n{_TRAILERS}", "Expire sessions\n\nThey stayed."),
        ("Content-Type: text is lost", "Content-Type: text is lost"),
        ("Expire\n\nNote: they stayed for ever", "Expire\n\nNote: they stayed for ever"),
        ("Expire\n\nAcked-by: A B <a@b.example>\nmore text", "Expire\n\nAcked-by: A B <a@b.example>\nmore text"),
    ],
)
def test_the_last_lines_of_a_message_are_left_out_if_they_are_no_prose(message: str, prose: str) -> None:
    assert without_trailers(message) == prose


def test_messages_are_not_similar_because_of_their_trailers() -> None:
    log = f"{RECORD}Internal change\n\n{_TRAILERS}{FIELD}a.py\0".encode()
    terms = parse_log(log).each.postings.keys()
    assert terms == count_terms("Internal change").keys()
    assert not terms & read_question(f"Expire sessions\n\n{_TRAILERS}").terms.keys()
