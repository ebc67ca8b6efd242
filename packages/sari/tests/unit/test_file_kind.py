"""The kind of a file, by its path: what ranked search shows first, and what it shows only when nothing else fits."""

import pytest

from sari.ranking.file_kind import FileKind, kind_of
from sari.ranking.question import read_question
from sari.ranking.rank import Candidate, Evidence, rank
from sari.ranking.retrieval import Retrieved
from sari.ranking.similar_commits import changed_by_similar, collect
from sari.ranking.weights import DEFAULT


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("src/app/session.py", FileKind.SOURCE),
        ("lib/router.ex", FileKind.SOURCE),
        ("shaders/blur.WGSL", FileKind.SOURCE),
        ("setup.py", FileKind.SOURCE),
        ("src/config.ts", FileKind.SOURCE),
        ("tests/test_session.py", FileKind.TEST),
        ("docs/session.md", FileKind.DOCUMENT),
        ("CHANGELOG.md", FileKind.RECORD),
        ("vendor/x/y.go", FileKind.VENDORED),
        ("Makefile", FileKind.AUXILIARY),
        ("App.sln.DotSettings", FileKind.AUXILIARY),
        ("assets/icon.png", FileKind.AUXILIARY),
        ("NuGet.config", FileKind.AUXILIARY),
        ("karma.conf.js", FileKind.AUXILIARY),
        ("packages/a/vite.config.mts", FileKind.AUXILIARY),
        (".eslintrc.js", FileKind.AUXILIARY),
        ("Gruntfile.js", FileKind.AUXILIARY),
    ],
)
def test_a_file_is_of_the_kind_that_its_path_says(path: str, kind: FileKind) -> None:
    assert kind_of(path) is kind


def test_a_message_asks_for_tests_only_in_its_first_line() -> None:
    assert read_question("tests for the session store").wants_tests
    assert not read_question("Expire sessions\n\n* add a unit test").wants_tests


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("fix: type of child logger", b"logger.d.ts"),
        ("Fix TypeScript regression in the logger\n\nA child logger", b"logger.d.ts"),
        ("flush the child logger", b"logger.js"),
        ("flush the child logger\n\n* fix types", b"logger.js"),
    ],
)
def test_a_stub_is_first_if_the_question_is_about_types(question: str, best: bytes) -> None:
    found = [Candidate(Retrieved(0, path, 1.0, 1.0)) for path in (b"logger.js", b"logger.d.ts")]
    ranked = rank(found, read_question(question), {"logger": 1.0}, Evidence(), DEFAULT)
    assert ranked[0].path == best


def test_a_commit_that_shares_only_the_common_words_of_a_question_is_less_similar() -> None:
    commits = collect([({"remove", "feature"}, [b"a.py"]), ({"route"}, [b"b.py"])])
    shared = changed_by_similar(commits, {"remove": 1.0, "feature": 1.0})
    with_unknown = changed_by_similar(commits, {"remove": 1.0, "feature": 1.0, "hashtable": 1.0})
    assert with_unknown[b"a.py"] < shared[b"a.py"]
