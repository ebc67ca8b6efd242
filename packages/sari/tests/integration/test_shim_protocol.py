"""The wire as a client sees it: both framings, cancellation, requests side by side, nothing twice and nothing else."""

import signal

from testing.sari.processes import kill
from testing.sari.shim import INITIALIZE, found_paths, result_of
from testing.sari.world import World


def test_headers_are_answered_in_kind_and_kept_across_a_crash(world: World) -> None:
    shim = world.shim(world.workspace("project"), uses_headers=True)
    shim.initialize()
    assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]
    kill(world.one_daemon())
    assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]
    assert shim.end() == 0
    assert shim.stray == []


def test_own_answers_need_no_daemon(world: World) -> None:
    plain = world.base / "plain"
    plain.mkdir()
    shim = world.shim(plain)
    shim.initialize()
    for method in ("tools/list", "ping", "prompts/list", "resources/list", "server/discover"):
        assert "result" in shim.request(method)
    assert shim.request("no/such")["error"]["code"] == -32601  # type: ignore[index]
    shim.end()
    world.wait_for_only()


def test_ping_and_cancel_work_during_a_call_and_the_cancelled_one_is_never_answered(world: World) -> None:
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    shim.call("search", {"query": "needle"})
    daemon = world.one_daemon()
    kill(daemon, signal.SIGSTOP)
    waits, cancelled = shim.ask_tool("search", {"query": "needle"}), shim.ask_tool("search", {"query": "needle"})
    assert shim.request("ping")["result"] == {}
    shim.notify("notifications/cancelled", {"requestId": cancelled})
    # It reads in order: with this answer, it knows of the cancellation.
    assert shim.request("ping")["result"] == {}
    kill(daemon, signal.SIGCONT)
    assert found_paths(result_of(shim.answer(waits))) == ["hello.txt"]
    assert shim.end() == 0
    assert not shim.has_answer(cancelled)


def test_an_id_in_use_is_refused_and_ids_of_every_kind_come_back(world: World) -> None:
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    shim.call("search", {"query": "needle"})
    # Ours are negative numbers: the client may use the very same.
    for request_id in ("text", "", -1, -1_000_000_000_001, -1_000_000_000_002, 2**60, 0):
        call = {"name": "search", "arguments": {"query": "needle"}}
        assert found_paths(result_of(shim.answer(shim.ask("tools/call", call, request_id)))) == ["hello.txt"]
    kill(world.one_daemon())
    call = {"name": "search", "arguments": {"query": "needle"}}
    assert found_paths(result_of(shim.answer(shim.ask("tools/call", call, -1_000_000_000_003)))) == ["hello.txt"]


def test_unknown_tools_and_bad_arguments_say_what_to_do(world: World) -> None:
    shim = world.shim(world.workspace("project"))
    shim.initialize()
    assert shim.answer(shim.ask_tool("nothing", {}))["error"]["code"] == -32602  # type: ignore[index]
    result = shim.answer(shim.ask_tool("search", {}))["result"]
    assert isinstance(result, dict)
    assert result["isError"] is True
    assert "query" in result["content"][0]["text"]


def test_a_batch_is_answered_message_by_message(world: World) -> None:
    shim = world.shim(world.workspace("project"))
    shim.send(
        [
            {"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": INITIALIZE},
            {"jsonrpc": "2.0", "id": "b", "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ]
    )
    assert "result" in shim.answer("a")
    assert shim.answer("b")["result"] == {}


def test_the_shim_starts_from_the_standard_library_alone(world: World) -> None:
    shim = world.shim(world.workspace("project"), environ={"PYTHONVERBOSE": "1"})
    shim.initialize()
    shim.call("search", {"query": "needle"})
    shim.end()
    loaded = shim.stderr.decode(errors="replace")
    assert "import 'sari.shim.core'" in loaded
    for name in (
        "asyncio",
        "tree_sitter",
        "watchdog",
        "tomlkit",
        "argparse",
        "sari.daemon",
        "sari.index",
        "sari.tools",
    ):
        assert f"import '{name}'" not in loaded
