"""Repositories that would fill the daemon's memory: messages of 10 MB, words and names without an end, files of very many
definitions. What is kept of them has a bound, and an answer that lacks something says so.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from sari.languages import parser_pool
from sari.ranking import commit_messages, term_index, terms, worker
from sari.ranking.file_history import parse_log
from sari.ranking.term_segment import FileTerms, TermSegment, write_segment
from sari.tools import repo_map
from sari.tools.workspace import Workspace, open_workspace
from testing.sari.calls import call_tool
from testing.sari.trees import git


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "repo"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    return made


@pytest.fixture
def workspace(root: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened = open_workspace(root, tmp_path / "data")
    yield opened
    opened.close()


def commit_messages_of(root: Path, messages: list[bytes]) -> None:
    """Make a commit for each message."""
    given = b""
    for number, message in enumerate(messages):
        given += b"commit refs/heads/main\ncommitter A <a@example.org> %d +0000\n" % (1_700_000_000 + number)
        given += b"data %d\n%s\nM 100644 inline f%d.txt\ndata 2\nx\n\n" % (len(message), message, number)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input=given, check=True, timeout=240)
    git(root, "reset", "-q", "--hard")


def test_commits_after_huge_messages_are_found_like_all_others(root: Path, workspace: Workspace) -> None:
    huge = [b"subject %d\n\n" % number + b"filler words " * 1_000_000 for number in range(7)]
    commit_messages_of(root, [b"the oldest change of all", *huge])
    listed = call_tool(workspace, "history", max_tokens=20_000)
    assert listed["complete"] is True
    assert len(listed["commits"]) == 8
    found = call_tool(workspace, "history", query="oldest change")
    assert found["commits"][0]["message"] == "the oldest change of all"
    assert len(call_tool(workspace, "history", text="x", max_tokens=20_000)["commits"]) == 8


def test_a_file_of_very_many_definitions_is_received_in_small_pieces(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding all of them at once lets no other thread of the daemon run for half a second."""
    count = 100_000
    (root / "many.py").write_text("".join(f"v{number} = 1\n" for number in range(count)))
    sizes: list[int] = []

    def loads(line: bytes) -> object:
        sizes.append(len(line))
        return json.loads(line)

    monkeypatch.setattr(parser_pool, "json", SimpleNamespace(loads=loads, dumps=json.dumps))
    process = parser_pool.ParserProcess(os.fsencode(root))
    try:
        ((path, parsed),) = process.parse([b"many.py"], lambda: False)
        assert path == b"many.py"
        assert parsed is not None
        assert [symbol.name for symbol in parsed.symbols] == [f"v{number}" for number in range(count)]
        assert max(sizes) < 1 << 19
        # The process answers the next request.
        assert process.first_error("python", b"x = 1\ny = (\n", lambda: False) == (2,)
        # Places of a name that is a whole line of megabytes are not even sent.
        text = b"a " * (1 << 20)
        assert process.roles("python", text, [(0, 2 * n, 2 * n + 1) for n in range(1 << 20)], lambda: False) is None
        assert process.roles("python", b"x = 1\n", [(0, 0, 1)], lambda: False) == ["use"]
    finally:
        process.close()


def test_a_commit_of_any_date_is_shown(root: Path, workspace: Workspace) -> None:
    given = b"commit refs/heads/main\ncommitter A <a@example.org> 99999999999999 +0000\ndata 4\nlate\n"
    subprocess.run(
        ["git", "fast-import", "--quiet", "--date-format=raw-permissive"], cwd=root, input=given, check=True
    )
    assert call_tool(workspace, "history")["commits"][0]["date"].startswith("9999")


def test_messages_that_take_too_much_space_are_left_out_and_the_answer_says_so(
    root: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [bytes((97 + number // 26, 97 + number % 26)) * 3 for number in range(40)]
    commit_messages_of(root, [b"message %s " % word + b"filler%s " % word * 900 for word in words])
    monkeypatch.setattr(commit_messages, "_MOST_BYTES", 100_000)
    monkeypatch.setattr(commit_messages, "_BATCH", 5)
    for _ in range(2):
        found = call_tool(workspace, "history", query=words[39].decode())
        assert found["commits"][0]["message"].startswith("message bnbnbn")
        assert found["complete"] is False
        assert "too large" in found["note"]
    assert call_tool(workspace, "history", query=words[0].decode())["commits"] == []


def test_the_history_of_files_keeps_a_bounded_number_of_terms() -> None:
    words = " ".join(f"w{number:x}" for number in range(900)).encode()
    names = b"".join(b"dir/f%d\0" % number for number in range(20))
    history = parse_log((b"\x01" + words + b"\x02\n" + names) * 400)
    assert 0 < len(history.each.paths) < 200


def test_a_long_word_stays_in_no_cache() -> None:
    before = terms._terms_of_word.cache_info().currsize
    assert [terms.terms_of_word("x" * length) for length in range(1_000, 1_100)] == [()] * 100
    assert terms._terms_of_word.cache_info().currsize == before


def test_files_read_for_ranked_answers_are_kept_up_to_a_size(
    root: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (root / f"f{number}.py").write_text(f"def handle_{number}():\n    return 'sessions'\n" + "word = 1\n" * 3_000)
    assert workspace.index.wait_settled(120)
    assert workspace.terms.wait_built(120)
    monkeypatch.setattr(term_index, "_KEPT_BYTES", 500_000)
    answers = [call_tool(workspace, "search", query="handle sessions", mode="ranked") for _ in range(2)]
    assert answers[0]["matches"] == answers[1]["matches"]
    kept = workspace.terms._contents
    assert sum(content.bytes for _, content in kept.values()) == workspace.terms._contents_bytes <= 500_000
    assert 0 < len(kept) < 20


def test_a_segment_ends_where_its_terms_take_too_much_memory(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [FileTerms(b"f%d" % number, 1, {"body": {f"t{number}": 1}}) for number in range(3)]
    assert write_segment(tmp_path / "a.terms", files, most_bytes=500) == 2
    assert TermSegment(tmp_path / "a.terms").paths == [b"f0", b"f1"]
    monkeypatch.setattr(worker, "write_segment", partial(write_segment, most_bytes=1))
    for number in range(5):
        (root / f"f{number}.py").write_text(f"def handle_{number}():\n    return 1\n")
    opened = open_workspace(root, tmp_path / "data")
    try:
        assert opened.index.wait_settled(120)
        assert opened.terms.wait_built(120)
        answer = call_tool(opened, "search", query="handle", mode="ranked")
        assert {row["path"] for row in answer["matches"]} == {f"f{number}.py" for number in range(5)}
        assert answer["complete"] is True
    finally:
        opened.close()


def test_a_map_compares_a_bounded_number_of_names(
    root: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        (root / f"f{number}.py").write_text("".join(f"def name_{number}_{at}(): pass\n" for at in range(4_000)))
    assert workspace.index.wait_settled(120)
    # All files are parsed before.
    assert workspace.terms.wait_built(240)
    drawn = call_tool(workspace, "repo_map")
    assert drawn["complete"] is True
    kept = workspace._map._kept
    assert kept is not None
    assert all(len(of_file) <= 2_000 for of_file in kept[1].ranks.definitions.values())
    monkeypatch.setattr(repo_map, "_MOST_CHARACTERS", 100_000)
    workspace._map._kept = None
    partial_map = call_tool(workspace, "repo_map")
    assert partial_map["complete"] is False
    assert "of 8 files" in partial_map["note"]
