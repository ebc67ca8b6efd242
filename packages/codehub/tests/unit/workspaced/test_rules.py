"""The helper's rules without I/O: what is busy, which paths stay inside, what listens, what a screen shows."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
import tarfile
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import codehub.workspaced
from codehub.workspaced import netports, paths, proctable, tars
from codehub.workspaced.activity import WINDOW_S, History, Proc, busiest
from codehub.workspaced.errors import RequestError
from codehub.workspaced.files import parse_range
from codehub.workspaced.request_body import whole_number
from codehub.workspaced.streams import port_of
from codehub.workspaced.timestamps import timestamp

FOLDER = Path(codehub.workspaced.__file__).parent


def proc(
    pid: int, cpu_s: float, *, parent: int = 1, tty: int = 0, group: int = 0, foreground: int = -1, name: str = ""
) -> Proc:
    return Proc(pid, 100 + pid, parent, group or pid, pid, tty, foreground, cpu_s, name or f"p{pid}")


SHELL = proc(10, 0.5, tty=34816, foreground=11, name="bash")


def test_a_build_in_the_foreground_of_a_terminal_is_busy() -> None:
    make = proc(11, 20.0, parent=10, tty=34816, foreground=11, name="make -j4")
    found = busiest([SHELL, make], {}, {}, WINDOW_S)
    assert found is not None
    assert found.name == "make -j4"


def test_a_loop_of_short_commands_is_busy_though_none_of_them_is_seen_twice() -> None:
    before = {SHELL.key: SHELL.times}
    later = SHELL._replace(cpu_s=20.0)  # with the children that it waited for
    pause = proc(12, 0.0, parent=10, tty=34816, foreground=12, name="sleep 1")
    found = busiest([later._replace(foreground_group=12), pause], before, {}, WINDOW_S)
    assert found is not None
    assert found.name == "bash"
    # A shell that waits for nothing but a sleep has used nothing.
    assert busiest([SHELL._replace(foreground_group=12), pause], before, {}, WINDOW_S) is None
    # The loop in the background of an idle shell.
    loop = proc(13, 20.0, parent=10, tty=34816, foreground=10)
    assert busiest([SHELL._replace(foreground_group=10), loop], before, {}, WINDOW_S) is None


def test_a_background_job_of_a_terminal_is_not() -> None:
    shell = SHELL._replace(foreground_group=10)
    job = proc(11, 20.0, parent=10, tty=34816, foreground=10)
    assert busiest([shell, job], {shell.key: shell.times}, {}, WINDOW_S) is None


def test_a_forgotten_sleep_and_an_idle_shell_are_not() -> None:
    sleep = proc(20, 0.01, parent=1, name="sleep infinity")
    assert busiest([SHELL._replace(foreground_group=10), sleep], {}, {20: "sleep infinity"}, WINDOW_S) is None


def test_what_exec_started_counts_with_its_children_and_names_the_command() -> None:
    procs = [proc(30, 0.1, name="pytest -n 4"), proc(31, 3.0, parent=30), proc(32, 3.0, parent=31)]
    found = busiest(procs, {}, {30: "pytest -n 4"}, WINDOW_S)
    assert found is not None
    assert (found.name, found.cpu_percent) == ("pytest -n 4", 10.2)


def test_the_ide_itself_and_daemons_are_not_work() -> None:
    assert busiest([proc(40, 50.0, name="node code-server")], {}, {}, WINDOW_S) is None


procs = st.lists(
    st.builds(
        Proc,
        st.integers(2, 12), st.just(1), st.integers(0, 12), st.integers(2, 12), st.integers(2, 12),
        st.sampled_from([0, 7]), st.integers(-1, 12), st.floats(0, 600), st.sampled_from(["a", "b", "c"]),
    ),
    max_size=8, unique_by=lambda each: each.pid,
)  # fmt: skip


@given(procs, st.dictionaries(st.integers(2, 12), st.just("run"), max_size=3))
def test_what_used_nothing_since_the_window_began_is_never_busy(seen: list[Proc], roots: dict[int, str]) -> None:
    assert busiest(seen, {each.key: each.times for each in seen}, roots, WINDOW_S) is None


@given(procs, st.dictionaries(st.integers(2, 12), st.just("run"), max_size=3), st.floats(0, 500))
def test_more_use_never_makes_it_less_busy(seen: list[Proc], roots: dict[int, str], more: float) -> None:
    before = busiest(seen, {}, roots, WINDOW_S)
    after = busiest([each._replace(cpu_s=each.cpu_s + more) for each in seen], {}, roots, WINDOW_S)
    assert before is None or after is not None


@given(st.lists(st.floats(0.1, 30), min_size=1, max_size=60))
def test_the_window_begins_a_minute_ago_or_with_the_first_sample(gaps: list[float]) -> None:
    history, now, samples = History(), 1000.0, []
    for gap in gaps:
        history.add(now, [proc(5, now)])
        samples.append(now)
        now += gap
    before, window_s = history.before(samples[-1])
    begin = before[(5, 105)].cpu_s
    assert begin in samples
    assert window_s >= WINDOW_S
    older = [sample for sample in samples if sample <= samples[-1] - WINDOW_S]
    assert begin == (older[-1] if len(older) and len(samples) > 1 else samples[0]) or len(samples) <= 2


@given(procs, st.dictionaries(st.integers(2, 12), st.just("run"), max_size=3), st.floats(0, 500))
def test_waiting_for_a_core_counts_like_using_it(seen: list[Proc], roots: dict[int, str], more: float) -> None:
    used = busiest([each._replace(cpu_s=more, waited_s=0.0) for each in seen], {}, roots, WINDOW_S)
    waited = busiest([each._replace(cpu_s=0.0, waited_s=more) for each in seen], {}, roots, WINDOW_S)
    assert used == waited


def test_a_loop_of_short_commands_is_busy_on_an_overloaded_machine() -> None:
    """Each command waits two seconds for a core and uses hardly any; the next observation finds another one."""
    history, seen, now = History(), [SHELL], 1000.0
    for pid in range(20, 32):
        command = proc(pid, 0.01, parent=10, tty=34816, foreground=pid)._replace(waited_s=2.0)
        seen = history.add(now, [SHELL._replace(foreground_group=pid), command])
        now += 5.0
    found = busiest(seen, history.before(now)[0], {}, WINDOW_S)
    assert found is not None
    assert found.name == "bash"


def test_a_loop_is_busy_between_two_of_its_commands_too() -> None:
    """The last command has ended, and the shell waits for a core to start the next: nobody is in the foreground group."""
    history, nested = History(), proc(14, 0.0, parent=10, tty=34816, foreground=11)
    job = proc(13, 0.0, parent=10, tty=34816, foreground=11)  # in the background
    command = proc(11, 0.1, parent=14, tty=34816, foreground=11)
    history.add(1000.0, [SHELL, nested, job, command])
    for now in (1005.0, 1010.0):  # more than once: the shell may be unlucky again
        between = history.add(now, [SHELL, nested._replace(cpu_s=20.0), job._replace(cpu_s=30.0)])
        found = busiest(between, history.before(now)[0], {}, WINDOW_S, history.foreground)
        assert found is not None
        assert (found.name, found.cpu_percent) == ("p14", 33.3), "and the job in the background does not count"
    # The loop was put in the background, or ended: its shell has the terminal again.
    at_prompt = [each._replace(foreground_group=10, cpu_s=90.0 if each.pid == 14 else each.cpu_s) for each in between]
    history.add(1015.0, at_prompt)
    assert busiest(at_prompt, history.before(1015.0)[0], {}, WINDOW_S, history.foreground) is None


@given(procs, procs)
def test_whoever_holds_a_terminal_decides_alone_who_is_in_its_foreground(
    first: list[Proc], second: list[Proc]
) -> None:
    history = History()
    history.add(1000.0, first)
    history.add(1005.0, second)
    fresh = History()
    fresh.add(1005.0, second)
    if any(each.tty and each.group == each.foreground_group for each in second):
        assert history.foreground == fresh.foreground
    assert fresh.foreground <= history.foreground <= {each.key for each in second if each.tty}


@given(st.lists(st.lists(st.tuples(st.integers(2, 9), st.integers(0, 9), st.floats(0, 10)), max_size=8), max_size=8))
def test_no_time_is_inherited_that_was_not_observed(tables: list[list[tuple[int, int, float]]]) -> None:
    history, observed = History(), 0.0
    for at, table in enumerate(tables):
        procs = {pid: proc(pid, 0.0, parent=parent)._replace(waited_s=waited) for pid, parent, waited in table}
        observed += sum(each.waited_s for each in procs.values())
        seen = history.add(float(at), procs.values())
        assert [each.key for each in seen] == [each.key for each in procs.values()]
        assert all(each.waited_s >= procs[each.pid].waited_s for each in seen)
        assert sum(each.waited_s for each in seen) <= observed + 1e-6


def test_a_process_that_no_core_was_free_for_has_waited() -> None:
    """More processes than cores, all of them spinning: each waits."""
    script = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2 * (os.cpu_count() or 1) + 1)]
    try:
        deadline = time.monotonic() + 60
        pids = {process.pid for process in spinning}
        while sum(each.waited_s > 0.05 for each in proctable.read(os.getuid()) if each.pid in pids) < len(pids):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@given(st.floats(allow_nan=False))
def test_any_time_of_a_file_can_be_shown(at: float) -> None:
    assert datetime.fromisoformat(timestamp(at)).tzinfo is not None


def test_times_are_shown_like_everywhere_in_the_api() -> None:
    assert timestamp(1794896426.76882) == "2026-11-17T06:20:26.768820Z"


def test_this_process_is_in_the_table() -> None:
    (me,) = [each for each in proctable.read(os.getuid()) if each.pid == os.getpid()]
    assert me.parent == os.getppid()
    assert me.cpu_s > 0


def test_a_name_with_parentheses_does_not_confuse_the_table() -> None:
    fields = b" ".join(
        [b"S", b"1", b"2", b"3", b"0", b"-1", *[b"0"] * 5, b"100", b"50", b"0", b"0", *[b"0"] * 4, b"77"]
    )
    found = proctable.parse_stat(9, b"9 (a) b (c) " + fields, b"")
    assert found is not None
    assert (found.name, found.start, found.parent) == ("a) b (c", 77, 1)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_listeners_of_both_families_are_found(family: socket.AddressFamily) -> None:
    with socket.create_server(("::" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family) as listener:
        port = listener.getsockname()[1]
        found = {item["port"]: item for item in netports.listeners(os.getuid())}
        assert found[port]["address"] == ("::" if family == socket.AF_INET6 else "127.0.0.1")
        assert found[port]["process"]
        assert netports.addresses(port) == ["::1" if family == socket.AF_INET6 else "127.0.0.1"]
        assert port not in {item["port"] for item in netports.listeners(os.getuid(), hidden=[port])}


names = st.sampled_from([b"a", b"b", b"..", b".", b"", b"in", b"out", b"up", b"loop", b"file"])


@given(st.lists(names, max_size=8))
def test_no_path_leaves_the_home(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    top = tmp_path_factory.mktemp("paths", numbered=True)
    home = top / "home"
    (home / "a" / "b").mkdir(parents=True)
    (top / "secret").mkdir()
    (home / "file").write_text("")
    for name, target in (("in", "a/b"), ("out", str(top / "secret")), ("a/up", "../.."), ("loop", "loop")):
        (home / name).symlink_to(target)
    try:
        with paths.locate(os.fsencode(home), b"/".join(parts)) as place:
            where = Path(os.readlink(f"/proc/self/fd/{place.fd}"))
            assert where == home or home in where.parents
            assert place.name not in (b"..", b".")
            if place.name and os.path.lexists(where / os.fsdecode(place.name)):
                assert not (where / os.fsdecode(place.name)).is_symlink()
    except RequestError:
        return  # refused: that is what must happen to those that leave


@given(st.text(max_size=30), st.integers(0, 10_000))
def test_a_range_is_inside_the_file_or_refused(text: str, size: int) -> None:
    for header in (text, f"bytes={text}", "bytes=5-", "bytes=-7", "bytes=3-9"):
        try:
            found = parse_range(header, size)
        except RequestError:
            continue  # not satisfiable
        assert found is None or 0 <= found[0] <= found[1] <= size


@given(st.text(alphabet="a./", max_size=12), st.text(alphabet="a./", max_size=12))
def test_no_member_of_a_tar_leads_out(name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    if tars.inside(name) and tars.link_inside(member):
        found = os.path.normpath(os.path.join("/root", os.path.dirname(name), target))
        assert found == "/root" or found.startswith("/root/")


def test_the_source_is_python_3_9_and_imports_nothing_of_codehub() -> None:
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Match), path
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("codehub") for alias in node.names), path
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert not (node.module or "").startswith("codehub"), path


@pytest.mark.parametrize(
    "text", ["²", "٣", "", "-1", "1" * 5000], ids=["superscript", "arabic", "empty", "negative", "long"]
)
def test_what_is_no_number_is_refused_and_breaks_no_connection(text: str) -> None:
    """Python takes some characters for digits that it cannot read, and refuses to read thousands of them."""
    for read in (port_of, lambda given: whole_number(given, "after")):
        with pytest.raises(RequestError):
            read(text)
    assert parse_range(f"bytes={text}-{text}", 10) is None
