"""The part of `codehub doctor` that tries the boundaries of a workspace from inside of one.

Which targets this installation has, and what the results say to people. What an attempt does is the probe's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from codehub.adapters.docker.engine import DEFAULT_HOST
from codehub.adapters.docker.instances import DockerOptions
from codehub.adapters.docker.probes import DockerProbes
from codehub.adapters.probe_workspaces import Neighbour, ProbeRuntime, probe_workspaces
from codehub.adapters.process.probes import ProcessProbes
from codehub.cli.boundary_targets import Fixes, bait, metadata, neighbours, parts
from codehub.cli.checks import Finding, Health
from codehub.cli.effective_settings import EffectiveSettings
from codehub.cli.pod_boundaries import try_in_pods
from codehub.domain.boundaries import Attempt, Boundary, Judgement, Means, Outcome, Verdict, judge
from codehub.domain.errors import CodeHubError
from codehub.settings import Settings
from codehub.wiring import backend_options, catalog_of, stored_installation_id

DEADLINE_S = 10  # removing the workspaces afterwards takes up to a few seconds more
_ALONE_S = 10  # how much longer a probe lives whose doctor was killed
_PREPARE_TIMEOUT_S = 120.0
_SPARE_MEMORY_BYTES = 1 << 30
_MOST_FILES = 50
# Programs that workspaces run; homes, which are a boundary of their own; and where the probes themselves are.
_OTHER_PARTS = ("ide", "homes", "run")


_PROCESS = Fixes(
    "install bubblewrap and slirp4netns and restart the workspaces, or set CODEHUB_RUNTIME=docker; if the address is in "
    "CODEHUB_INSTANCE_NETWORKS, take it out",
    "install bubblewrap and restart the workspaces",
    "run CodeHub as root, or have systemd delegate a subtree of control groups to it (Delegate=yes)",
)
_DOCKER = Fixes(
    "run CodeHub as root beside the engine, with iptables, and start a workspace, which sets the packet filter again; if "
    "the address is in CODEHUB_INSTANCE_NETWORKS, take it out",
    "use an engine with its default isolation: no privileged containers, its own seccomp profile",
    "use an engine that enforces limits; `docker info` warns about those that it cannot enforce",
)
_PART = "boundary"


async def check_boundaries(state: EffectiveSettings, deadline_s: int = DEADLINE_S) -> list[Finding]:
    reason = _not_here(state.settings)
    if reason is not None:
        return [_untried(*reason)]
    try:
        try_all = try_in_pods if _runtime(state.settings) == "kubernetes" else _try_all
        return [_finding(judgement) for judgement in await try_all(state.settings, deadline_s)]
    except (CodeHubError, OSError) as error:
        return [_untried(f"a throw-away workspace: {error}", "fix that, then run `codehub doctor` again")]


def _runtime(settings: Settings) -> str:
    chosen_docker = settings.runtime == "auto" and (settings.data_dir / "runtime").exists()
    return "docker" if chosen_docker else settings.runtime


def _in_container(settings: Settings) -> bool:
    """Whether CodeHub runs beside its workspaces, as with Compose: the engine sees other paths than we do."""
    return _runtime(settings) == "docker" and settings.homes_host_dir is not None


def _place(settings: Settings) -> Path:
    """Return where throw-away workspaces live. With Compose, the engine sees only the directory of sockets as we do."""
    if _in_container(settings) and settings.sockets_dir is not None:
        return settings.sockets_dir
    return settings.data_dir / "run"


def _not_here(settings: Settings) -> tuple[str, str] | None:
    place = _place(settings)
    if _in_container(settings) and not os.access(place, os.W_OK | os.X_OK):
        return (
            f"{place} cannot be written here, and the engine sees no other directory",
            "run it as the coordinator: `docker compose run --rm coordinator doctor`",
        )
    # On Kubernetes they are tried in Pods, and nothing is needed here: CodeHub's own volume belongs to root.
    owner = settings.data_dir.stat().st_uid if settings.data_dir.exists() else os.geteuid()
    if _runtime(settings) != "kubernetes" and os.geteuid() not in (0, owner):
        return f"{settings.data_dir} belongs to another user", "run `codehub doctor` as the user who runs CodeHub"
    return None


def _untried(why: str, fix: str) -> Finding:
    verdict = Verdict.NOT_TRIED
    return Finding(_PART, Health.WARNING, f"{verdict}: {why}", fix, boundary="all", verdict=verdict)


def _finding(judgement: Judgement) -> Finding:
    health = {Verdict.HELD: Health.GOOD, Verdict.NOT_HELD: Health.BAD, Verdict.NOT_TRIED: Health.WARNING}
    name, verdict = judgement.boundary.name, judgement.verdict
    message = f"{name}: {verdict}" + (f" ({judgement.why})" if judgement.why else "")
    return Finding(_PART, health[verdict], message, judgement.fix, boundary=name, verdict=verdict)


async def _try_all(settings: Settings, deadline_s: int) -> list[Judgement]:
    on_docker = _runtime(settings) == "docker"
    fixes = _DOCKER if on_docker else _PROCESS
    made: list[ProbeRuntime] = []

    def make(base: Path) -> ProbeRuntime:
        made.append(_docker_probes(base, settings) if on_docker else _process_probes(base, settings))
        return made[-1]

    boundaries: list[Boundary] = []
    outcomes: dict[Attempt, Outcome] = {}
    async with probe_workspaces(_place(settings), make, deadline_s + _ALONE_S) as probes:
        runtime = made[-1]
        # Not part of the deadline: the first container of a machine waits for its tools.
        async with asyncio.timeout(_PREPARE_TIMEOUT_S):
            gateway = await runtime.prepare()
        async with bait(fixes, gateway, also_gateway=on_docker) as services:
            try:
                async with asyncio.timeout(deadline_s):
                    neighbour = await probes.start_neighbour()
                    boundaries += await parts(settings, fixes, gateway)
                    if on_docker:
                        boundaries.append(_engine(settings))
                    boundaries += [*services, *neighbours(neighbour, fixes, gateway), metadata(fixes)]
                    boundaries += _files(settings, neighbour, fixes)
                    boundaries += _resources(runtime, fixes, own_user_namespaces=_may_nest(settings, on_docker))
                    await probes.attack([a for boundary in boundaries for a in boundary.attempts], outcomes)
            except TimeoutError:
                if not boundaries:
                    raise TimeoutError(f"it did not answer within {deadline_s} s") from None
    return [judge(boundary, outcomes) for boundary in boundaries]


def _process_probes(base: Path, settings: Settings) -> ProbeRuntime:
    options = backend_options(settings, "").process
    assert options is not None
    return ProcessProbes(base, options)


def _docker_probes(base: Path, settings: Settings) -> ProbeRuntime:
    catalog = catalog_of(settings)
    profiles = [catalog.profiles[catalog.default], *catalog.profiles.values()]
    images = (*(profile.image for profile in profiles if profile.image), *catalog.allowed_images)
    limits = backend_options(settings, "").limits
    options = DockerOptions(base, limits, allowed_networks=settings.instance_networks)
    return DockerProbes(base, settings.docker_host, stored_installation_id(settings), options, images)


def _may_nest(settings: Settings, on_docker: bool) -> bool:
    """Whether workspaces may make user namespaces. In containers, the engine's filter of system calls forbids it."""
    return settings.instance_user_namespaces and not on_docker


def _engine(settings: Settings) -> Boundary:
    """Whoever reaches the engine is root. Its socket answers us, or no container would run."""
    path = (settings.docker_host or DEFAULT_HOST).removeprefix("unix://")
    usual = DEFAULT_HOST.removeprefix("unix://")
    attempts = tuple(Attempt(Means.UNIX, each) for each in dict.fromkeys((path, usual)))
    return Boundary("reach the Docker engine", attempts, "do not mount the engine's socket into workspaces")


def _files(settings: Settings, other: Neighbour, fixes: Fixes) -> list[Boundary]:
    homes = [other.home / "secret", other.home, *_some(settings.homes, 1, ())]
    data = [other.record, *_some(settings.data_dir, 2, _OTHER_PARTS)]
    return [
        Boundary("read another home", _reads(homes), fixes.files),
        Boundary("read CodeHub's data directory", _reads(data), fixes.files),
    ]


def _some(top: Path, depth: int, without: Iterable[str]) -> list[Path]:
    """A sample: files and, at the last level, directories that have something in them."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(top), key=lambda entry: entry.name):
            if entry.name in without or entry.is_symlink():
                continue
            if entry.is_dir() and depth > 1:
                found += _some(Path(entry.path), depth - 1, ())
            elif entry.is_file() or (entry.is_dir() and any(Path(entry.path).iterdir())):
                found.append(Path(entry.path))
    return found[:_MOST_FILES]


def _reads(paths: Iterable[Path]) -> tuple[Attempt, ...]:
    return tuple(Attempt(Means.READ, str(path)) for path in paths)


def _resources(runtime: ProbeRuntime, fixes: Fixes, *, own_user_namespaces: bool) -> list[Boundary]:
    memory, processes = "take more memory than its limit", "start more processes than its limit"
    found = [
        Boundary(processes, (Attempt(Means.PROCESSES, amount=2 * runtime.pids),), fixes.limits),
        Boundary(memory, (Attempt(Means.MEMORY, amount=2 * runtime.memory_bytes),), fixes.limits),
    ]
    if psutil.virtual_memory().available < _SPARE_MEMORY_BYTES:
        found[1] = Boundary(memory, (), fixes.limits, "less than 1 GB of this machine's memory is free", "free some")
    if not own_user_namespaces:
        found.insert(0, Boundary("make a user namespace", (Attempt(Means.USER_NAMESPACE),), fixes.files))
    return found
