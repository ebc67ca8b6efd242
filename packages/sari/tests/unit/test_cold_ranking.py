"""Ranked search before its index is built: the files that contain most of the question."""

import os
from pathlib import Path

from sari.ranking.cold import candidates
from sari.ranking.question import read_question


def test_file_names_may_contain_anything(tmp_path: Path) -> None:
    names = [b"new\nline.py", b"---", b"odd\xff.py", b"plain.py", b"late.txt"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"a needle\n")
    # ripgrep prints a message about it among the matches.
    (tmp_path / "late.txt").write_bytes(b"a needle\n" + b"x\n" * 60_000 + b"\0\n")
    found = candidates(tmp_path, read_question("where is the needle"), None, lambda: False)
    assert set(found) == set(names)
