"""Two real wheels, upgraded and downgraded under clients that call without a pause: nobody notices, nothing is left."""

import pytest

from testing.sari.callers import Caller, stop_all, total
from testing.sari.processes import wait_until
from testing.sari.shim import Shim
from testing.sari.versions import sari_of_version
from testing.sari.world import World

pytestmark = pytest.mark.xdist_group("sari-chaos")

OLD, NEW = "3.97.0", "3.98.0"
CLIENTS = 8
ROUNDS = 5
CALLS = 2_000


def _caller(world: World, number: int, sari: str) -> Caller:
    text = f"text of client {number}"

    def call(shim: Shim) -> None:
        content = shim.call("read", {"path": "file.txt"})["structuredContent"]
        assert isinstance(content, dict)
        assert text in content["text"]

    return Caller(world.shim(world.workspace(f"project{number}", file__txt=text + "\n"), sari=sari), call)


def _serving(world: World) -> tuple[int, str]:
    """The daemon the registry names, if it is the only one that lives."""
    daemons = [entry for entry in world.registry()["daemons"].values() if not entry["draining"]]
    if len(daemons) != 1 or world.daemons() != [daemons[0]["pid"]]:
        return 0, ""
    return daemons[0]["pid"], daemons[0]["version"]


def _wait_for(world: World, version: str) -> int:
    """The pid of the look that found it: a moment later a starter that lost the race for the lock may live too."""
    found = (0, "")

    def serves() -> bool:
        nonlocal found
        found = _serving(world)
        return found[1] == version

    wait_until(serves, f"only a daemon of version {version}: {world.registry()}")
    return found[0]


def test_five_upgrades_and_downgrades_lose_no_call_of_eight_clients(world: World) -> None:
    old, new = sari_of_version(OLD), sari_of_version(NEW)
    callers = [_caller(world, number, old) for number in range(CLIENTS)]
    for caller in callers:
        caller.start()

    wait_until(lambda: total(callers) and all(caller.calls for caller in callers), "everyone has begun")
    pids = {_wait_for(world, OLD)}
    root = world.workspace("visitor")
    for _ in range(ROUNDS):
        before = total(callers)
        # Up: a client of the new version comes, and its call is answered at once, by whoever is there.
        visitor = world.shim(root, sari=new)
        visitor.initialize()
        visitor.call("read", {"path": "hello.txt"})
        pids.add(newer := _wait_for(world, NEW))
        visitor.end()
        wait_until(lambda: total(callers) > before + CALLS // ROUNDS // 2, "calls go on")  # noqa: B023 - within the round
        # An older client uses the newer daemon, and replaces nobody.
        late = world.shim(root, sari=old)
        late.initialize()
        late.call("read", {"path": "hello.txt"})
        late.end()
        assert _wait_for(world, NEW) == newer
        # Down: only when a person asks for it.
        assert world.sari("daemon", "restart", sari=old).returncode == 0
        pids.add(_wait_for(world, OLD))
        before = total(callers)
        wait_until(lambda: total(callers) > before + CALLS // ROUNDS // 2, "calls go on")  # noqa: B023 - within the round
    assert total(callers) >= CALLS
    calls = stop_all(callers)
    assert len(pids) == 1 + 2 * ROUNDS
    world.end_shims()
    world.wait_for_only(_wait_for(world, OLD))
    print(f"hand-overs {2 * ROUNDS}, calls {calls}, failures 0, processes left 1 (the daemon)")


@pytest.mark.parametrize(
    ("version", "at_start"),
    [("3.99.1", "raise SystemError('broken')"), ("3.99.2", "import time\ntime.sleep(1000)")],
    ids=["dies", "hangs"],
)
def test_a_new_version_that_cannot_start_leaves_the_old_one_serving(
    world: World, version: str, at_start: str
) -> None:
    old, broken = sari_of_version(OLD), sari_of_version(version, at_start=at_start)
    world.environ["SARI_START_TIMEOUT_SEC"] = "3"
    root = world.workspace("project")
    first = world.shim(root, sari=old)
    first.initialize()
    first.call("read", {"path": "hello.txt"})
    daemon = world.one_daemon()
    second = world.shim(root, sari=broken)
    second.initialize()
    second.call("read", {"path": "hello.txt"})
    wait_until(lambda: (world.data / "failed-start.json").exists(), "the failure is noted")
    world.wait_for_only(daemon, first.pid, second.pid)
    first.call("read", {"path": "hello.txt"})
    second.call("read", {"path": "hello.txt"})
    assert _wait_for(world, OLD) == daemon
