"""Many clients at the same instant on a cold machine: one daemon, however the start goes."""

import pytest

from testing.sari.processes import kill, wait_until
from testing.sari.shim import INITIALIZE, Shim, found_paths, result_of
from testing.sari.world import World

pytestmark = pytest.mark.xdist_group("sari-chaos")

CLIENTS = 50


def _ask_all(shims: list[Shim]) -> list[object]:
    # Everything is written at once, before anyone waits: initialize and the call reach each shim together.
    requests = []
    for shim in shims:
        shim.ask("initialize", INITIALIZE)
        requests.append(shim.ask_tool("search", {"query": "needle"}))
    return requests


def test_fifty_shims_at_once_start_one_daemon(world: World) -> None:
    root = world.workspace("project")
    shims = [world.shim(root) for _ in range(CLIENTS)]
    requests = _ask_all(shims)
    answers = [found_paths(result_of(shim.answer(one))) for shim, one in zip(shims, requests, strict=True)]
    assert answers == [["hello.txt"]] * CLIENTS
    daemon = world.one_daemon()
    assert next(iter(world.registry()["daemons"].values()))["pid"] == daemon
    world.end_shims()
    world.wait_for_only(daemon)
    assert all(shim.stray == [] for shim in world.shims)
    assert world.sari("daemon", "stop").returncode == 0
    world.wait_for_only()


def test_fifty_shims_in_three_workspaces_share_one_daemon(world: World) -> None:
    roots = [world.workspace(f"project{n}", **{f"only{n}__txt": "a needle\n"}) for n in range(3)]
    shims = [world.shim(roots[n % 3]) for n in range(CLIENTS)]
    requests = _ask_all(shims)
    answers = [found_paths(result_of(shim.answer(one))) for shim, one in zip(shims, requests, strict=True)]
    assert answers == [[f"only{n % 3}.txt"] for n in range(CLIENTS)]
    daemon = world.one_daemon()
    wait_until(lambda: set(world.registry()["workspaces"]) == {str(root) for root in roots}, "all roots registered")
    world.end_shims()
    world.wait_for_only(daemon)


@pytest.mark.parametrize(("victim", "clients"), [("daemon", CLIENTS), ("starter", 10)])
def test_shims_survive_a_start_killed_half_way(world: World, victim: str, clients: int) -> None:
    root = world.workspace("project")
    first = world.shim(root)
    first_requests = _ask_all([first])
    wait_until(world.daemons, "a daemon is on its way")
    if victim == "starter":
        first.kill()
        shims, requests = [], []
    else:
        for pid in world.daemons():
            kill(pid)
        shims, requests = [first], first_requests
    rest = [world.shim(root) for _ in range(clients - 1)]
    shims, requests = shims + rest, requests + _ask_all(rest)
    answers = [found_paths(result_of(shim.answer(one))) for shim, one in zip(shims, requests, strict=True)]
    assert answers == [["hello.txt"]] * len(shims)
    daemon = world.one_daemon()
    world.end_shims()
    world.wait_for_only(daemon)
