"""Ranked search, piece by piece: terms, chunks, segments, retrieval and packing keep their promises for any input."""

import string
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sari.languages.parse import Symbol
from sari.ranking.chunks import Chunk, ScoredChunk, cut
from sari.ranking.corpus import Corpus
from sari.ranking.file_history import FIELD, RECORD, FileHistory, parse_log
from sari.ranking.question import read_question
from sari.ranking.rank import Candidate, Evidence, Ranked, name_match, rank, subjects
from sari.ranking.ranker import FileContent
from sari.ranking.retrieval import Retrieved, retrieve, weigh
from sari.ranking.similar_commits import changed_by_similar, collect
from sari.ranking.snippets import pack
from sari.ranking.stem import stem
from sari.ranking.term_segment import FIELDS, FileTerms, TermSegment, write_segment
from sari.ranking.terms import count_terms, terms_of_word
from sari.ranking.weights import DEFAULT

_WORDS = st.text(string.ascii_lowercase, min_size=3, max_size=12)
_TERMS = st.sampled_from(["session", "expire", "token", "cache", "route", "handler", "x1", "é"])
_COUNTS = st.dictionaries(_TERMS, st.integers(1, 255), max_size=5)


@given(_WORDS)
def test_a_stem_is_never_empty_or_longer(word: str) -> None:
    assert 0 < len(stem(word)) <= len(word) + 1


@given(st.lists(_WORDS, min_size=2, max_size=4))
def test_an_identifier_has_the_same_terms_in_every_spelling(words: list[str]) -> None:
    snake, camel = "_".join(words), "".join(word.capitalize() for word in words)
    assert terms_of_word(snake) == terms_of_word(camel)
    assert set(terms_of_word(snake)) >= {stem(word) for word in words}


def test_forms_of_a_word_are_one_term() -> None:
    for forms in (
        "serialize serializer serializers serializing serialized serialization",
        "route router routes routing routed",
        "dependency dependencies depends dependent",
        "cache cached caching caches",
        "map mapping mapped maps",
    ):
        assert len({stem(form) for form in forms.split()}) == 1, forms


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert all(count > 0 for count in count_terms(text).values())
    assert all(weight > 0 for weight in read_question(text).terms.values())


@given(
    st.integers(0, 400),
    st.lists(st.tuples(st.integers(1, 420), st.integers(0, 200), st.sampled_from(["class", "method", "field"]))),
)
def test_chunks_cover_every_line_once(count: int, spans: list[tuple[int, int, str]]) -> None:
    symbols = [Symbol(f"s{at}", kind, at, at + length, None) for at, length, kind in spans]
    chunks = cut(symbols, ["# comment" if line % 7 == 0 else "code" for line in range(count)])
    covered = [line for chunk in chunks for line in range(chunk.start, chunk.end + 1)]
    assert covered == list(range(1, count + 1))
    assert all(chunk.end - chunk.start < 95 for chunk in chunks)


@settings(max_examples=40)
@given(st.lists(st.fixed_dictionaries(dict.fromkeys(FIELDS, _COUNTS)), max_size=12))
def test_a_segment_gives_back_what_was_written(files: list[dict[str, dict[str, int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "one.terms"
        write_segment(target, [FileTerms(b"f%d" % n, n - 3, fields) for n, fields in enumerate(files)])
        segment = TermSegment(target)
        assert segment.paths == [b"f%d" % n for n in range(len(files))]
        assert list(segment.stamps) == [n - 3 for n in range(len(files))]
        for term in {term for fields in files for counts in fields.values() for term in counts} | {"absent"}:
            row = segment.row(term)
            for field in FIELDS:
                held = {n: fields[field][term] for n, fields in enumerate(files) if term in fields[field]}
                posting = row.get(field)
                assert (dict(zip(posting.ids, posting.counts, strict=True)) if posting else {}) == held
        segment.close()


@settings(max_examples=40)
@given(st.lists(st.fixed_dictionaries({"body": _COUNTS, "name": _COUNTS}), min_size=1, max_size=12), st.data())
def test_files_that_hold_more_of_the_question_come_first(
    files: list[dict[str, dict[str, int]]], data: st.DataObject
) -> None:
    question = data.draw(st.lists(_TERMS, min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "one.terms"
        write_segment(target, [FileTerms(b"f%d" % n, n, fields) for n, fields in enumerate(files)])
        segment = TermSegment(target)
        corpus = Corpus([segment], {path: n for n, path in enumerate(segment.paths)}, FileHistory())
        terms = weigh(corpus, read_question(" ".join(question)), DEFAULT)
        within_budget = retrieve(corpus, terms, DEFAULT, 150)
        everywhere = retrieve(corpus, terms, DEFAULT, 150, lambda _: True)
        segment.close()
    assert {one.path: one.score for one in within_budget} == {one.path: one.score for one in everywhere}
    assert sorted((one.score for one in everywhere), reverse=True) == [one.score for one in everywhere]
    wanted = {one.term for one in terms}
    holding = {b"f%d" % n for n, fields in enumerate(files) if wanted & {t for c in fields.values() for t in c}}
    assert {one.path for one in everywhere} == holding
    assert all(0 <= one.coverage <= 1.0001 for one in everywhere)


def test_a_dead_document_is_not_found() -> None:
    with tempfile.TemporaryDirectory() as folder:
        segments = []
        for number in range(2):
            target = Path(folder) / f"{number}.terms"
            write_segment(target, [FileTerms(b"a.py", number, {"body": {"token": 1}})])
            segments.append(TermSegment(target))
        corpus = Corpus(segments, {b"a.py": 1 << 16}, FileHistory())
        found = retrieve(corpus, weigh(corpus, read_question("token"), DEFAULT), DEFAULT, 10)
        assert [one.document for one in found] == [1 << 16]
        for segment in segments:
            segment.close()


@given(st.binary(max_size=200))
def test_any_log_is_parsed(output: bytes) -> None:
    history = parse_log(RECORD.encode() + output + FIELD.encode() + output)
    assert all(count > 0 for count in history.commits.values())


def test_messages_count_for_the_files_they_touched() -> None:
    log = "".join(
        f"{RECORD}{message}{FIELD}\n{chr(0).join(paths)}{chr(0)}"
        for message, paths in (
            ("Expire sessions", ["auth/session.py", "auth/store.py"]),
            ("Expire tokens", ["auth/token.py"]),
            ("Reformat everything", [f"f{n}.py" for n in range(50)]),
        )
    )
    history = parse_log(log.encode())
    assert history.messages[stem("expire")] == Counter(
        {b"auth/session.py": 1, b"auth/store.py": 1, b"auth/token.py": 1}
    )
    assert history.commits == Counter({b"auth/session.py": 1, b"auth/store.py": 1, b"auth/token.py": 1})


def test_a_file_named_by_the_question_matches_more() -> None:
    terms = {stem(word): 1.0 for word in ("json", "array", "access")}
    assert name_match("src/JsonArray.java", terms) > name_match("src/JsonReader.java", terms) > 0
    assert name_match("src/array/mod.rs", terms) > name_match("src/string/mod.rs", terms) == 0


@given(
    st.lists(st.lists(st.text(string.printable, max_size=80), min_size=1, max_size=40), min_size=1, max_size=8),
    st.integers(10, 400),
)
def test_snippets_stay_within_their_budget(files: list[list[str]], max_tokens: int) -> None:
    lines = {b"f%d.py" % n: [row.replace("\n", " ") for row in rows] for n, rows in enumerate(files)}
    ranked = [
        Ranked(path, 1.0, (ScoredChunk(Chunk(1, len(rows), "f"), 2.0), ScoredChunk(Chunk(1, 1), 1.9)))
        for path, rows in lines.items()
    ]
    snippets = pack(ranked, lambda path: FileContent(lines[path], ()), max_tokens)
    assert snippets[0].path == b"f0.py"
    spent = sum(len(one.text.encode()) + len(one.path) for one in snippets)
    assert spent <= max_tokens * 4 or len(snippets) == 1
    for one in snippets:
        shown = [row[:200].rstrip() for row in lines[one.path][one.start - 1 : one.end]]
        assert one.text.split("\n") == shown[: len(one.text.split("\n"))] or not one.text


_COMMITS = st.lists(
    st.tuples(
        st.frozensets(_TERMS, max_size=6),
        st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=4, unique=True),
    ),
    max_size=12,
)
_WEIGHTED_WORDS = st.dictionaries(_TERMS, st.floats(0.1, 1.0), max_size=6)


@given(_COMMITS, _WEIGHTED_WORDS)
def test_similar_commits_score_their_own_files_between_0_and_1(
    commits: list[tuple[frozenset[str], list[bytes]]], question: dict[str, float]
) -> None:
    scores = changed_by_similar(collect(commits), question)
    assert all(0 < score < 1 for score in scores.values())
    assert set(scores) <= {path for terms, paths in commits if terms & question.keys() for path in paths}


@given(_COMMITS, st.frozensets(_TERMS, min_size=1))
def test_a_file_scores_more_for_every_commit_that_says_exactly_the_question(
    commits: list[tuple[frozenset[str], list[bytes]]], question: frozenset[str]
) -> None:
    """Commits of other words stay as they are, so that the terms' rarity and the mean length do too."""
    terms = dict.fromkeys(question, 1.0)
    once = changed_by_similar(collect([(question, [b"new"]), *commits, (question, [b"old"])]), terms)
    assert once[b"new"] > once[b"old"], "a newer commit counts more"
    wide = changed_by_similar(collect([(question, [b"new", b"beside"]), *commits, (question, [b"old"])]), terms)
    assert wide[b"new"] < once[b"new"], "a commit of many files says less about each"
    both = changed_by_similar(collect([(question, [b"new"]), *commits, (question, [b"new"])]), terms)
    assert both[b"new"] > once[b"new"]


def test_of_two_files_that_match_alike_the_one_that_a_similar_commit_changed_comes_first() -> None:
    question = read_question("expire the session")
    files = [Retrieved(number, path, 1.0, 1.0) for number, path in enumerate((b"a.py", b"b.py"))]
    terms = dict.fromkeys(question.terms, 1.0)
    candidates = [Candidate(file) for file in files]
    plain = rank(candidates, question, terms, Evidence(), DEFAULT)
    assert [one.path for one in plain] == [b"a.py", b"b.py"]
    similar = changed_by_similar(collect([(question.terms, [b"b.py"])]), question.terms)
    ranked = rank(candidates, question, terms, Evidence(similar=similar), DEFAULT)
    assert [one.path for one in ranked] == [b"b.py", b"a.py"]


@pytest.mark.parametrize(
    ("test", "source"),
    [
        ("tests/test_store.py", "src/store.py"),
        ("pkg/store_test.go", "pkg/store.go"),
        ("src/test/java/JsonStoreTest.java", "src/main/java/JsonStore.java"),
        ("src/store.spec.ts", "src/store.ts"),
        ("spec/json_store_spec.rb", "lib/json_store.rb"),
    ],
)
def test_a_test_that_matches_leads_to_the_file_it_tests(test: str, source: str) -> None:
    question = read_question("an empty basket is not paid for")
    files = [Retrieved(0, b"src/aaa.py", 1.0, 0.1), Retrieved(1, source.encode(), 1.0, 0.1)]
    found = [*files, Retrieved(2, test.encode(), 9.0, 1.0)]
    terms = dict.fromkeys(question.terms, 1.0)
    ranked = rank(map(Candidate, files), question, terms, Evidence(tested=subjects(found)), DEFAULT)
    assert ranked[0].path == source.encode()


def test_a_question_mentions_files_and_identifiers() -> None:
    question = read_question("Fix `retry` in lib/core/Axios.js: parse_header() drops maxSize, e.g. on HTTPError.")
    assert question.paths == {"lib/core/Axios.js"}
    assert question.identifiers == {"retry", "parse_header", "maxSize", "HTTPError"}
    files = [
        Retrieved(number, path, 1.0, 0.1) for number, path in enumerate((b"aaa.js", b"packages/lib/core/Axios.js"))
    ]
    ranked = rank(map(Candidate, files), question, {"x": 1.0}, Evidence(), DEFAULT)
    assert ranked[0].path == b"aaa.js", "nothing of the question is known"
    ranked = rank(map(Candidate, files), question, dict.fromkeys(question.terms, 1.0), Evidence(), DEFAULT)
    assert ranked[0].path == b"packages/lib/core/Axios.js"


def test_a_log_keeps_each_commit_by_itself() -> None:
    log = "".join(
        f"{RECORD}{message}{FIELD}\n{names}\0" for message, names in (("expire session", "a\0b"), ("route", "c"))
    )
    history = parse_log(log.encode())
    assert [list(paths) for paths in history.each.paths] == [[b"a", b"b"], [b"c"]]
    assert set(changed_by_similar(history.each, {"rout": 1.0, stem("route"): 1.0})) == {b"c"}
