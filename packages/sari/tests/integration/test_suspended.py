"""Nothing is missed while nobody looks: a stopped daemon, a full event queue, a machine without watches to give."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sari.index.search import Query
from testing.sari import trees
from testing.sari.edits import Editor
from testing.sari.oracle import by_ripgrep, queries
from testing.sari.shim import Answer
from testing.sari.world import World

pytestmark = pytest.mark.timeout(600)
_QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


def _content(result: Answer) -> dict[str, object]:
    content = result["structuredContent"]
    assert isinstance(content, dict)
    return content


def test_a_daemon_that_slept_through_more_events_than_the_kernel_keeps_misses_none(world: World) -> None:
    root = world.workspace("slept")
    for number in range(200):
        trees.write_source(random.Random(number), root / f"src/d{number % 9}/f{number}.py", number)
    shim = world.shim(root)
    shim.initialize()
    assert _content(shim.call("search", {"query": "needle in here"}))["total"] == 1
    daemon = world.one_daemon()
    os.kill(daemon, signal.SIGSTOP)
    try:
        # Each new file is three events at least: made, written, closed.
        count = int(_QUEUE.read_text()) // 2
        assert count < 20_000
        for number in range(count):
            folder = root / f"slept/{number % 50}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"n{number}.txt").write_text(f"made while asleep_{number}\n")
        (root / "src/d1/f1.py").write_text("changed while asleep\n")
        (root / "src/d2/f2.py").unlink()
        (root / "src/d3").rename(root / "src/elsewhere")
    finally:
        os.kill(daemon, signal.SIGCONT)
    for query in ("made while asleep", "changed while asleep", "asleep_77", "def unique_2_", "def unique_"):
        wanted = by_ripgrep(root, Query(query))
        assert _content(shim.call("search", {"query": query}))["total"] == len(wanted), query
    assert _content(shim.call("rescan", {}))["changed"] == 0
    assert world.one_daemon() == daemon


_FEW_WATCHES = """
import sys
from pathlib import Path
from sari.index import watch
from sari.index.workspace_index import WorkspaceIndex
from sari.index.search import Query
from testing.sari.oracle import by_index, differences
root, data = Path(sys.argv[1]), Path(sys.argv[2])
def refuse(*_):
    raise watch.NoWatching("max_user_watches")
if sys.argv[3:]:
    watch.Watcher._add = refuse
index = WorkspaceIndex(root, data)
assert index.wait_settled(120)
assert "max_user_watches" in str(index.status()["watching"]), index.status()
(root / "d7/new.txt").write_text("needle saved without a watch")
assert differences(index, root, [Query("needle"), Query("without a watch")]) == []
assert len(by_index(index, Query("without a watch"))) == 1
(root / "d8/f8.txt").write_text("needle changed")
assert differences(index, root, [Query("needle"), Query("changed")]) == []
index.close()
"""
# A user namespace has a limit of its own, which does not touch anyone else's.
_LIMITED = 'echo 8 > /proc/sys/user/max_inotify_watches && exec "$@"'


def test_when_the_kernel_has_no_watches_left_it_compares_instead(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    for number in range(30):
        (root / f"d{number}").mkdir(parents=True)
        (root / f"d{number}/f{number}.txt").write_text("needle\n")
    command = [sys.executable, "-c", _FEW_WATCHES, str(root), str(tmp_path / "data")]
    limited = ["unshare", "-U", "-r", "sh", "-c", _LIMITED, "sh"]
    if subprocess.run([*limited, "true"], capture_output=True, check=False).returncode == 0:
        command = [*limited, *command]
    else:
        # No user namespaces on this machine: the refusal is made up.
        command.append("refused")
    done = subprocess.run(command, cwd=trees.REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_a_daemon_killed_again_and_again_while_files_change_answers_as_ripgrep_does(world: World) -> None:
    root = world.workspace("killed")
    rng = random.Random(61)
    for number in range(400):
        trees.write_source(rng, root / f"src/d{number % 9}/f{number}.py", number)
    editor = Editor(rng, root)
    shim = world.shim(root)
    shim.initialize()
    for _ in range(6):
        for _ in range(60):
            editor.edit()
        shim.call("status", {})
        os.kill(world.wait_for_one_daemon(), signal.SIGKILL)
        for query in [Query("needle"), *queries(rng, root, 5)]:
            arguments = {"query": query.text, "mode": query.mode, "case": query.case}
            wanted = by_ripgrep(root, query)
            assert _content(shim.call("search", arguments))["total"] == len(wanted), query
