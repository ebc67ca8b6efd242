"""The paragraph about sari goes into any instructions file, and out of it again without a trace."""

from hypothesis import given
from hypothesis import strategies as st

from sari.install.clients import Launch
from sari.install.guidance import BEGIN, END, GUIDANCE, PARAGRAPH, by_receipt

_LAUNCH = Launch("/bin/sari")
_TEXTS = st.text(max_size=200).filter(lambda text: BEGIN not in text and END not in text)


@given(_TEXTS, _TEXTS)
def test_what_is_put_in_is_taken_out(before: str, after: str) -> None:
    guidance = GUIDANCE["claude"]
    put = guidance.put(before, _LAUNCH)
    assert put.startswith(before)
    assert put.count(PARAGRAPH) == 1
    assert guidance.put(put, _LAUNCH) == put
    assert guidance.drop(put + after).rstrip("\n") == (before + put[len(before) : put.find(BEGIN)] + after).rstrip(
        "\n"
    )
    assert guidance.drop(before) == before


def test_half_a_paragraph_is_left_alone() -> None:
    text = f"# Mine\n{BEGIN}\nno end\n"
    assert GUIDANCE["codex"].drop(text) == text


def test_a_receipt_finds_its_file_again() -> None:
    for guidance in GUIDANCE.values():
        assert by_receipt(guidance.name) is guidance
    assert by_receipt("codex") is None


def test_the_paragraph_is_short() -> None:
    assert len(PARAGRAPH) < 400
