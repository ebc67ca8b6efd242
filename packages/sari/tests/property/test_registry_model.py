"""The registry as values: what is written is read again, whatever else is in the file."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sari.registry.model import DaemonEntry, Damaged, Registry, WorkspaceEntry, dump, parse

TEXT = st.text(max_size=20)
EXTRA = st.dictionaries(TEXT.map(lambda name: "x-" + name), st.integers() | TEXT, max_size=3)
TIMES = st.floats(0, 1e10)
PORTS = st.integers(1, 65535)
DAEMONS = st.builds(
    DaemonEntry, TEXT, TEXT, PORTS, st.integers(-1, 2**31), TEXT, TIMES, TIMES, st.booleans(), TEXT, TEXT, EXTRA
)
PLACES = st.builds(WorkspaceEntry, TEXT, TIMES, TEXT, PORTS, EXTRA)
REGISTRIES = st.builds(
    Registry,
    st.lists(DAEMONS, max_size=4).map(lambda entries: {entry.boot_id: entry for entry in entries}),
    st.dictionaries(TEXT, PLACES, max_size=4),
    EXTRA,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(REGISTRIES)
def test_what_is_written_is_read_again_with_unknown_fields(registry: Registry) -> None:
    assert parse(dump(registry)) == registry


@given(JSON, JSON, JSON)
def test_anything_in_the_file_is_a_registry_or_damaged(
    daemons: object, workspaces: object, instances: object
) -> None:
    for content in (
        {"version": "2.0", "daemons": daemons, "workspaces": workspaces},
        {"version": "2.0", "daemons": {"a": daemons}, "workspaces": {"b": workspaces}},
        {"version": "1.0", "instances": {"/root": instances}},
        daemons,
    ):
        try:
            registry = parse(json.dumps(content))
        except Damaged:
            continue
        assert parse(dump(registry)) == registry


@given(REGISTRIES, DAEMONS)
def test_replacing_one_workspaces_daemon_marks_no_other(registry: Registry, entry: DaemonEntry) -> None:
    changed = registry.with_daemon(entry).with_workspace("/one", WorkspaceEntry(entry.boot_id))
    for root, place in registry.workspaces.items():
        assert root == "/one" or changed.workspaces[root] == place


def test_version_1_is_migrated_by_root() -> None:
    old = {
        "version": "1.0",
        "instances": {"/a": {"pid": 7, "port": 9}, "/b": {"pid": 8, "port": 10, "version": "0.9"}},
    }
    registry = parse(json.dumps(old))
    assert {root: registry.daemons[place.boot_id].pid for root, place in registry.workspaces.items()} == {
        "/a": 7,
        "/b": 8,
    }
    assert sorted(entry.version for entry in registry.daemons.values()) == ["0.9", "dev"]
