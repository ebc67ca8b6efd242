"""What a client sees of one shim and one daemon."""

from testing.sari.shim import found_paths
from testing.sari.world import World


def test_a_call_is_answered_and_everything_ends(world: World) -> None:
    root = world.workspace("project")
    shim = world.shim(root)
    answer = shim.initialize()
    assert answer["result"]["serverInfo"]["name"] == "sari"  # type: ignore[index]
    assert found_paths(shim.call("search", {"query": "needle"})) == ["hello.txt"]
    assert shim.end() == 0
    assert shim.stray == []
    stopped = world.sari("daemon", "stop")
    assert stopped.returncode == 0
    world.wait_for_only()
