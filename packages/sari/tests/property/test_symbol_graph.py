"""The map's ranking: what the code depends on comes first, whatever the names; plain words do not."""

from hypothesis import given
from hypothesis import strategies as st

from sari.ranking.symbol_graph import FileNames, foremost_first, importance, specificity

_NAMES = st.sampled_from(["QuerySet", "View", "join", "first", "open_file", "App", "_private", "x"])
_SIZES = st.dictionaries(_NAMES, st.integers(1, 500), max_size=4)


@given(
    st.dictionaries(
        st.sampled_from([b"a.py", b"b.py", b"c.py", b"d.py"]),
        st.builds(FileNames, _SIZES, _SIZES, st.frozensets(_NAMES), st.sampled_from([0.1, 1.0])),
    )
)
def test_ranks_are_finite_and_add_up(files: dict[bytes, FileNames]) -> None:
    ranks = importance(files)
    assert all(rank >= 0 for rank in ranks.files.values())
    if files:
        assert abs(sum(ranks.files.values()) - len(files)) < 1e-6
    for path, names in files.items():
        assert set(ranks.definitions[path]) == {*names.types, *names.functions}


def test_a_specific_type_comes_before_a_plain_word_that_is_used_as_often() -> None:
    files = {
        b"models.py": FileNames({"QuerySet": 100}, {}, frozenset()),
        b"filters.py": FileNames({}, {"first": 3, "join": 3, "default": 3}, frozenset()),
        **{
            b"user%d.py" % n: FileNames({}, {}, frozenset({"QuerySet", "first", "join", "default"})) for n in range(9)
        },
    }
    ranks = importance(files)
    foremost = sorted(((rank, name) for of in ranks.definitions.values() for name, rank in of.items()), reverse=True)
    assert foremost[0][1] == "QuerySet"
    assert ranks.files[b"models.py"] > ranks.files[b"filters.py"]


def test_a_short_type_counts_and_a_type_comes_before_a_method_of_the_same_name() -> None:
    assert specificity("App", is_type=True) > specificity("run", is_type=False) > 0
    assert specificity("App", is_type=True) > specificity("App", is_type=False)


def test_a_file_that_nobody_uses_ranks_below_one_that_is_used() -> None:
    files = {
        b"used.py": FileNames({"Engine": 10}, {}, frozenset()),
        b"unused.py": FileNames({"Gearbox": 10}, {}, frozenset()),
        b"main.py": FileNames({}, {"main": 5}, frozenset({"Engine"})),
    }
    ranks = importance(files)
    assert ranks.files[b"used.py"] > ranks.files[b"unused.py"]
    assert ranks.definitions[b"unused.py"]["Gearbox"] == 0


def test_a_definition_that_several_folders_use_comes_before_one_that_a_single_folder_uses() -> None:
    files = {
        b"core/wide.py": FileNames({"Engine": 10}, {}, frozenset()),
        b"core/narrow.py": FileNames({"Gearbox": 10}, {}, frozenset()),
        **{b"part%d/user.py" % n: FileNames({}, {}, frozenset({"Engine"})) for n in range(4)},
        **{b"part0/other%d.py" % n: FileNames({}, {}, frozenset({"Gearbox"})) for n in range(4)},
    }
    ranks = importance(files).definitions
    assert ranks[b"core/wide.py"]["Engine"] > ranks[b"core/narrow.py"]["Gearbox"] > 0


def test_a_large_part_does_not_hide_the_foremost_file_of_another() -> None:
    large = {b"app/db/%d.py" % n: 50.0 - n for n in range(10)}
    order = foremost_first({**large, b"app/views/base.py": 20.0, b"app/views/more.py": 19.0, b"app/x/y.py": 0.0})
    assert order[:3] == [b"app/db/0.py", b"app/views/base.py", b"app/db/1.py"]
    assert order[-2:] == [b"app/views/more.py", b"app/x/y.py"]


@given(
    st.dictionaries(st.sampled_from([b"a.py", b"x/a.py", b"x/y/a.py", b"x/y/z/a.py", b"x/y/b.py"]), st.floats(0, 9))
)
def test_every_file_is_listed_once_and_the_foremost_one_first(worth: dict[bytes, float]) -> None:
    order = foremost_first(worth)
    assert sorted(order) == sorted(worth)
    assert not order or worth[order[0]] == max(worth.values())
