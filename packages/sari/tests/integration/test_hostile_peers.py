"""Clients, projects and other users of the machine that send or prepare what no honest one would."""

import base64
import json
import os
import stat
import time
import tracemalloc
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sari.daemon.sessions import MOST_HTTP_SESSIONS, MOST_ROOTS, Session, Sessions
from sari.languages.parse import MAX_PARSED_BYTES
from sari.protocol import jsonrpc
from sari.protocol.errors import SariError
from sari.protocol.framing import LARGEST_MESSAGE
from sari.registry.layout import find_layout, make_private_directory
from testing.sari.processes import daemons_of
from testing.sari.world import World


def test_a_message_of_any_depth_is_answered_and_the_shim_continues(world: World) -> None:
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    for depth in (90, 500, *range(940, 1_000), 100_000):
        nested = "[" * depth + "]" * depth
        text = f'{{"jsonrpc":"2.0","id":{depth},"method":"tools/call","params":{{"name":"status","arguments":{nested}}}}}'
        shim.send_bytes(text.encode() + b"\n")
    assert "result" in shim.request("ping")
    assert "arguments" in str(shim.answer(90))


def test_a_nested_cursor_or_list_of_workspaces_is_refused_and_not_left_unanswered(world: World) -> None:
    root, other = world.workspace("project"), world.workspace("project/inner")
    shim = world.shim(root)
    shim.initialize()
    nested = "[" * 100_000
    cursor = base64.urlsafe_b64encode(nested.encode()).decode()
    for arguments in (
        {"query": "needle", "workspace": [str(root), str(other)], "cursor": cursor},
        {"query": "needle", "workspace": nested},
    ):
        assert "nested too deeply" in str(shim.request("tools/call", {"name": "search", "arguments": arguments}))


@pytest.mark.parametrize("unit", [b"{},", b"[[]],", b'"a",', b'{"a":1},', b"1,", b"[],"])
def test_a_message_of_millions_of_values_is_refused_before_it_fills_the_memory(unit: bytes) -> None:
    message = b'{"a":[' + unit * (LARGEST_MESSAGE // len(unit)) + b"0]}"
    tracemalloc.start()
    try:
        with pytest.raises(jsonrpc.NotAMessage, match="more than 100000 values"):
            jsonrpc.decode(message)
        # Decoded, it takes hundreds of megabytes, and seconds in which no client is answered.
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


_JSON = st.recursive(
    st.none() | st.floats(allow_nan=False) | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=20,
)


@given(_JSON)
def test_no_value_is_left_uncounted(value: object) -> None:
    def count(one: object) -> int:
        parts = [*one.values()] if isinstance(one, dict) else one if isinstance(one, list) else []
        return 1 + sum(map(count, parts))

    # So that these small texts are counted as large ones are. Hypothesis does not take `monkeypatch`.
    with patch.object(jsonrpc, "_FEW", -1):
        for ascii_only in (True, False):
            data = json.dumps(value, ensure_ascii=ascii_only).encode()
            assert jsonrpc.count_values(data) + 1 >= count(value)


@pytest.mark.parametrize("part", ['{"a": [1, 2]},\n', '\\"', "\\\\", '"', "\u4e00,"])
def test_the_largest_text_that_an_edit_may_have_is_accepted_whatever_it_holds(part: str) -> None:
    text = part * (MAX_PARSED_BYTES // len(part.encode()))
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"text": text}}}
    for ascii_only in (True, False):
        data = json.dumps(message, ensure_ascii=ascii_only).encode()
        assert len(data) <= LARGEST_MESSAGE
        assert jsonrpc.decode(data) == message
        assert jsonrpc.weigh(data) < len(data) + 10_000


def test_strings_without_an_end_are_counted_in_linear_time() -> None:
    for unit in (b'\\"', b'"', b'"\\', b"\\", b'",'):
        began = time.process_time()
        jsonrpc.count_values(b"[" * 2_000 + b'"' + unit * (LARGEST_MESSAGE // len(unit)))
        # Hours, if each quote were looked at from each other one.
        assert time.process_time() - began < 60


def test_ids_and_tokens_that_every_answer_would_repeat_have_a_bounded_length() -> None:
    assert jsonrpc.is_id("x" * jsonrpc.LONGEST_ID)
    assert not jsonrpc.is_id("x" * (jsonrpc.LONGEST_ID + 1))
    with pytest.raises(jsonrpc.NotAMessage):
        jsonrpc.check({"jsonrpc": "2.0", "id": "x" * 2_000, "method": "ping"})


def test_a_session_keeps_the_workspaces_that_it_used_last() -> None:
    session = Session("one", "", 0.0)
    for number in range(100):
        session.use(f"/r{number}")
        session.use("/always")
    assert len(session.roots) == MOST_ROOTS
    assert {"/always", "/r99", "/r98"} <= session.roots
    assert "/r0" not in session.roots


def test_http_sessions_are_bounded_and_those_with_a_running_call_stay() -> None:
    sessions = Sessions(1_000.0)
    sessions.take("shim", "", 0.0)
    sessions.take("busy", "", 0.0, http=True).running = 1
    for number in range(2 * MOST_HTTP_SESSIONS):
        sessions.take(f"s{number}", "", float(number), http=True)
    kept = {session.session_id for session in sessions}
    assert {"shim", "busy", f"s{2 * MOST_HTTP_SESSIONS - 1}"} <= kept
    assert len(kept) == MOST_HTTP_SESSIONS + 2


def test_a_directory_that_others_own_or_share_holds_no_registry(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "of another program").mkdir(parents=True)
    shared.chmod(0o1777)
    with pytest.raises(SariError, match="is shared with other users"):
        make_private_directory(str(shared))
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    mine = tmp_path / "mine"
    mine.mkdir()
    mine.chmod(0o777)
    make_private_directory(str(mine))
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    if os.geteuid() == 0:
        os.chown(mine, 12_345, 12_345)
        with pytest.raises(SariError, match="belongs to another user"):
            make_private_directory(str(mine))


def test_a_registry_that_a_project_brings_is_not_used(world: World) -> None:
    root = world.workspace("project")
    (root / ".sari").mkdir()
    (root / ".sari/allowed.json").write_text(json.dumps({"roots": ["/"], "language_servers": ["/"]}))
    with pytest.raises(SariError, match="depends on the current directory"):
        find_layout({"HOME": str(world.home), "SARI_REGISTRY_FILE": ".sari/server.json"})
    for named in (".sari/server.json", str(root / ".sari/server.json")):
        shim = world.shim(root, environ={"SARI_REGISTRY_FILE": named})
        shim.initialize()
        assert "SARI_REGISTRY_FILE is" in str(shim.request("tools/call", {"name": "status", "arguments": {}}))
    assert daemons_of(world.home) == []
    assert sorted(one.name for one in (root / ".sari").iterdir()) == ["allowed.json"]
