"""Reading `git log`, and following lines through an edit."""

import difflib

from hypothesis import given
from hypothesis import strategies as st

from sari.index.commits import Commit, committed_lines, parse_commits

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
_NAMES = st.lists(st.text("abc/. é\n", min_size=1, max_size=8), max_size=3)


@given(st.lists(st.tuples(_TEXT, _TEXT, _NAMES), max_size=4))
def test_whatever_a_message_holds_each_commit_is_read_once(given: list[tuple[str, str, list[str]]]) -> None:
    commits = [
        Commit(f"{number:040x}", number, author, message.strip("\n"), tuple(names))
        for number, (author, message, names) in enumerate(given)
    ]
    printed = b""
    for commit, (_, message, _) in zip(commits, given, strict=True):
        head = f"\0\0{commit.id}\0{commit.time_s}\0{commit.author}\0{message}\0\0"
        names = "\n" + "".join(f"{name}\0" for name in commit.paths) if commit.paths else ""
        printed += (head + names).encode()
    assert list(parse_commits([printed])) == commits
    assert list(parse_commits(printed[at : at + 3] for at in range(0, len(printed), 3))) == commits


@given(st.data())
def test_lines_are_found_in_the_committed_version(data: st.DataObject) -> None:
    old = [f"line {number}\n" for number in range(data.draw(st.integers(0, 12)))]
    kept = [line for line in old if data.draw(st.booleans())]
    new = list(kept)
    for number in range(data.draw(st.integers(0, 4))):
        new.insert(data.draw(st.integers(0, len(new))), f"new {number}\n")
    diff = "".join(difflib.unified_diff(old, new, n=0)).encode()
    if not new:
        return
    start = data.draw(st.integers(1, len(new)))
    end = data.draw(st.integers(start, len(new)))
    found = committed_lines(diff, start, end)
    places = [old.index(line) + 1 for line in new[start - 1 : end] if line in old]
    if places:
        assert found is not None
        assert found[0] <= min(places) <= max(places) <= found[1]
    if found is not None:
        assert 1 <= found[0] <= found[1] <= len(old)
