"""Clients that behave badly: leases end, there is one daemon, nothing is left."""

import json
import os
import signal
import subprocess
import sys

from testing.sari.processes import kill, wait_until
from testing.sari.shim import INITIALIZE, SARI, found_paths
from testing.sari.world import World


def _sessions(world: World) -> list[dict[str, object]]:
    shown = json.loads(world.sari("status", "--json").stdout)
    sessions = shown.get("sessions", [])
    assert isinstance(sessions, list)
    return sessions


def test_a_client_that_never_closes_stdin_loses_its_lease_and_takes_it_again(world: World) -> None:
    world.environ |= {"SARI_SESSION_LEASE_SEC": "1", "SARI_DAEMON_IDLE_SEC": "1"}
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    shim.call("search", {"query": "needle"})
    world.wait_for_only(shim.pid)
    assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]


def test_a_client_killed_at_once_leaves_no_session(world: World) -> None:
    root = world.workspace("project")
    stays, goes = world.shim(root), world.shim(root)
    for shim in (stays, goes):
        shim.initialize()
        shim.call("search", {"query": "needle"})
    daemon = world.one_daemon()
    assert len(_sessions(world)) == 2
    kill(goes.pid)
    wait_until(lambda: len(_sessions(world)) == 1, "the killed client's session is gone")
    stays.call("search", {"query": "needle"})
    assert world.one_daemon() == daemon


def test_a_client_whose_parent_dies_ends_with_it(world: World) -> None:
    root = world.workspace("project")
    # The parent holds the shim's stdin and stdout, and is killed in the middle.
    program = (
        "import json,subprocess,sys,time\n"
        "p=subprocess.Popen([sys.argv[1],'mcp'],stdin=subprocess.PIPE,stdout=subprocess.PIPE)\n"
        "p.stdin.write(sys.argv[2].encode()+b'\\n'); p.stdin.flush(); p.stdout.readline(); print(1,flush=True)\n"
        "time.sleep(999)"
    )
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search", "arguments": {"query": "x"}},
    }
    parent = subprocess.Popen(
        [sys.executable, "-c", program, SARI, json.dumps(call)], cwd=root, env=world.environ, stdout=subprocess.PIPE
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"1\n"
        daemon = world.one_daemon()
    finally:
        parent.kill()
        parent.communicate()
    world.wait_for_only(daemon)


def test_a_client_that_kills_its_process_group_does_not_kill_the_daemon(world: World) -> None:
    root = world.workspace("project")
    shim = world.shim(root, start_new_session=True)
    shim.initialize()
    shim.call("search", {"query": "needle"})
    daemon = world.one_daemon()
    os.killpg(shim.pid, signal.SIGKILL)
    world.wait_for_only(daemon)
    other = world.shim(root)
    other.call("search", {"query": "needle"})
    assert world.one_daemon() == daemon


def test_a_client_that_clears_the_environment_finds_the_same_daemon(world: World) -> None:
    root = world.workspace("project")
    world.sari("daemon", "start")
    daemon = world.one_daemon()
    bare = world.shim(root)
    bare.kill()
    # HOME is all that is left; the XDG variables of another client must make no difference.
    for environ in ({"HOME": str(world.home)}, {"HOME": str(world.home), "XDG_DATA_HOME": "/nowhere"}):
        world.environ = environ
        shim = world.shim(root)
        shim.initialize()
        assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]
    assert world.one_daemon() == daemon


def test_signals_end_a_shim_at_once(world: World) -> None:
    root = world.workspace("project")
    for number in (signal.SIGINT, signal.SIGTERM):
        shim = world.shim(root)
        shim.initialize()
        os.kill(shim.pid, number)
        assert shim.process.wait(60) == -number


def test_everything_written_before_stdin_closes_is_answered(world: World) -> None:
    root = world.workspace("project")
    calls = [
        {
            "jsonrpc": "2.0",
            "id": n,
            "method": "tools/call",
            "params": {"name": "search", "arguments": {"query": "needle"}},
        }
        for n in range(1, 21)
    ]
    first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
    text = "".join(json.dumps(message) + "\n" for message in [first, *calls])
    done = subprocess.run(
        [SARI, "mcp"],
        input=text,
        capture_output=True,
        text=True,
        cwd=root,
        env=world.environ,
        timeout=120,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(answer["id"] for answer in answers) == list(range(21))
    assert all("error" not in answer for answer in answers)


def test_the_clients_roots_decide_where_it_works(world: World) -> None:
    elsewhere = world.workspace("elsewhere", there__txt="needle\n")
    shim = world.shim(world.workspace("project"))
    shim.request("initialize", {**INITIALIZE, "capabilities": {"roots": {"listChanged": True}}})
    shim.notify("notifications/initialized")
    request = shim.wait_for_other("roots/list")
    call = shim.ask_tool("search", {"query": "needle"})
    roots = [{"uri": elsewhere.as_uri()}]
    shim.send({"jsonrpc": "2.0", "id": request["id"], "result": {"roots": roots}})
    answer = shim.answer(call)
    assert found_paths(answer["result"]) == ["there.txt"]  # type: ignore[arg-type]


def test_a_refused_root_is_said_in_the_answer_and_an_allowed_one_works(world: World) -> None:
    root = world.workspace("project")
    shim = world.shim(world.home)
    shim.initialize()
    answer = shim.answer(shim.ask_tool("search", {"query": "needle"}))
    result = answer["result"]
    assert isinstance(result, dict)
    assert result["isError"] is True
    assert "home directory" in result["content"][0]["text"]
    assert world.sari("allow", str(root)).returncode == 0
    named = shim.call("search", {"query": "needle", "workspace": str(root)})
    assert found_paths(named) == ["hello.txt"]


def test_a_request_past_its_deadline_gets_an_error(world: World) -> None:
    world.environ["SARI_REQUEST_TIMEOUT_SEC"] = "1"
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    # The first call may take longer than that on a busy machine; either way it is answered.
    shim.answer(shim.ask_tool("status", {}))
    wait_until(world.daemons, "a daemon")
    for pid in world.daemons():
        kill(pid, signal.SIGSTOP)
    answer = shim.answer(shim.ask_tool("status", {}))
    assert answer["error"]["code"] == -32001  # type: ignore[index]
    assert shim.request("ping")["result"] == {}
