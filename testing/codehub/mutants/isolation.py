"""Planted bugs that take away one protection of workspaces and of the machine each (docs/security.md).

Those that would send something to an address outside this machine if they went unnoticed are left out.
"""

from __future__ import annotations

from typing import Final

from testing.codehub.mutants.catalog import Mutant

_TESTS = "packages/codehub/tests"
_SOCKETS = (f"{_TESTS}/backends/test_workspace_socket.py",)
_RIGHTS = (f"{_TESTS}/integration/stack/test_rights.py",)
_DOCKERFILE = (f"{_TESTS}/unit/test_dockerfile.py",)
_IMAGES = (f"{_TESTS}/unit/domain/test_doors_and_images.py",)
_TRANSFERS = (f"{_TESTS}/unit/test_kubernetes_transfer_answers.py",)
_UNIT_SECRETS = (f"{_TESTS}/integration/deploy/test_unit_secrets.py",)


def _process(*names: str) -> tuple[str, ...]:
    return tuple(f"{_TESTS}/backends/test_process_isolation.py::{name}" for name in names)


def _network(*names: str) -> tuple[str, ...]:
    return tuple(f"{_TESTS}/backends/test_process_network.py::{name}" for name in names)


def _docker(*names: str) -> tuple[str, ...]:
    return tuple(f"{_TESTS}/backends/test_docker_isolation.py::{name}" for name in names)


ISOLATION: Final = (
    Mutant(
        "1: a socket's name may be a link",
        "adapters/workspace_socket.py",
        "os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_PATH | os.O_CLOEXEC",
        _SOCKETS,
    ),
    Mutant(
        "1: anyone may serve a workspace's socket",
        "adapters/workspace_socket.py",
        "_PEERCRED.unpack(raw)[1]) != expected:",
        "_PEERCRED.unpack(raw)[1]) == -expected - 1:",
        _SOCKETS,
    ),
    Mutant(
        "1: connected by name after the check",
        "adapters/workspace_socket.py",
        'connection.connect(f"/proc/self/fd/{target}")',
        "connection.connect(path)",
        _SOCKETS,
    ),
    Mutant(
        "1: links and foreign listeners in a process workspace",
        "adapters/workspace_socket.py",
        """    expected = os.geteuid() if uid is None else uid
    target = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat""",
        """    expected = os.stat(path).st_uid
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat""",
        _process("test_a_socket_replaced_by_a_link_leads_nowhere"),
    ),
    Mutant(
        "1: links and foreign listeners in a container",
        "adapters/workspace_socket.py",
        """    expected = os.geteuid() if uid is None else uid
    target = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat""",
        """    expected = os.stat(path).st_uid
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat""",
        _docker("test_a_socket_replaced_by_a_link_leads_nowhere"),
    ),
    Mutant(
        "1: API and proxy keep root",
        "cli/stack/unprivileged.py",
        "    os.setgroups([])\n    os.setresgid(gid, gid, gid)\n    os.setresuid(uid, uid, uid)\n",
        "",
        _RIGHTS,
    ),
    Mutant(
        "2: all of /etc in the sandbox",
        "adapters/process/sandbox.py",
        '_ETC = (\n    "alternatives",',
        '_ETC = (\n    *os.listdir("/etc"),\n    "alternatives",',
        _process("test_secrets_in_etc_and_opt_are_not_there"),
    ),
    Mutant(
        "2: /opt in the sandbox",
        "adapters/process/sandbox.py",
        '_SYSTEM = ("/usr", ',
        '_SYSTEM = ("/usr", "/opt", ',
        _process("test_secrets_in_etc_and_opt_are_not_there"),
    ),
    Mutant(
        "2: a workspace keeps CodeHub's group",
        "adapters/process/sandbox.py",
        'f"--regid={uid}",',
        'f"--regid={os.getegid()}",',
        _UNIT_SECRETS,
    ),
    Mutant(
        "4: the machine's loopback by way of slirp4netns",
        "adapters/process/netns.py",
        '        "--disable-host-loopback",\n',
        "",
        _network("test_services_of_this_machine_are_not_reached"),
    ),
    Mutant(
        "4: the machine's own addresses are reached",
        "adapters/process/launch_plan.py",
        "blocked_networks(_own_addresses(), self._options.allowed_networks)",
        "blocked_networks([], self._options.allowed_networks)",
        _network("test_the_internet_is_reached_and_names_are_asked_for_inside"),
    ),
    Mutant(
        "4: link-local is reached",
        "domain/networks.py",
        '_NEVER = ("0.0.0.0/8", LINK_LOCAL, *CLOUD_SERVICES, ',
        '_NEVER = ("0.0.0.0/8", *CLOUD_SERVICES, ',
        _network("test_a_listener_at_a_link_local_address_is_not_reached"),
    ),
    Mutant(
        "4: private networks are reached",
        "domain/networks.py",
        "(*map(IPv4Network, _NEVER), *private, *machine)",
        "(*map(IPv4Network, _NEVER), *machine)",
        _network("test_neither_metadata_nor_private_networks_are_reached"),
    ),
    Mutant(
        "5: a port of the machine for an IDE",
        "adapters/process/launch_plan.py",
        "bridged = not by_socket and bool(isolation.slirp)",
        "bridged = False",
        _network("test_an_ides_port_cannot_be_taken_by_another_workspace"),
    ),
    Mutant(
        "6: a line separator hides an instruction of a Dockerfile",
        "domain/dockerfile.py",
        'text.removesuffix("\\n").split("\\n")',
        "text.splitlines()",
        _DOCKERFILE,
    ),
    Mutant(
        "6: a flag hides an image that is not allowed",
        "domain/dockerfile.py",
        "        if not _FLAG.fullmatch(flag):",
        "        if False:",
        _DOCKERFILE,
    ),
    Mutant(
        "6: a stage hides an image of its own name",
        "domain/dockerfile.py",
        "complete = self._names[:-1]",
        "complete = self._names",
        _DOCKERFILE,
    ),
    Mutant(
        "6: a flag of ADD hides a URL",
        "domain/dockerfile.py",
        "_BLANKS.split(rest, maxsplit=1)",
        'rest.split(" ", 1)',
        _DOCKERFILE,
    ),
    Mutant(
        "13: any number of processes without control groups",
        "adapters/process/confinement.py",
        "        _lower(resource.RLIMIT_NPROC, plan.pids)\n",
        "        pass\n",
        _process("test_resource_limits_hold_and_are_not_raised_from_inside"),
    ),
    Mutant(
        "6: one user for all containers",
        "adapters/filesystem/ownership.py",
        "def container_uid_for(workspace_id: str) -> int | None:\n",
        "def container_uid_for(workspace_id: str) -> int | None:\n    workspace_id = 'the same'\n",
        _docker("test_each_workspace_has_its_own_user_and_cannot_change_codehubs_tools"),
    ),
    Mutant(
        "7: starts without isolation",
        "adapters/process/instances.py",
        "        await self._require_isolation()\n",
        "",
        (f"{_TESTS}/backends/test_broken_sandbox.py::test_nothing_starts_without_it_where_there_are_several_users",),
    ),
    Mutant(
        "7: auto falls back from Docker",
        "adapters/backend_set.py",
        "    if chosen.exists():\n",
        "    if False:\n",
        (f"{_TESTS}/backends/test_docker_troubles.py::test_auto_stays_with_docker_while_the_engine_is_away",),
    ),
    Mutant(
        "17: PostgreSQL and Valkey as a user of other services",
        "adapters/embedded/account.py",
        '_SHARED_NAMES = frozenset({"nobody", "daemon", "bin", "sys", "www-data", "postgres"})',
        "_SHARED_NAMES = frozenset({''})",
        (f"{_TESTS}/integration/stack/test_rights.py::test_a_user_that_is_somebody_elses_is_refused",),
    ),
    Mutant(
        "git: any protocol of a repository's URL",
        "adapters/git_remote.py",
        '"GIT_ALLOW_PROTOCOL": "https:http",',
        '"GIT_ALLOW_PROTOCOL": "https:http:ext:file",',
        (f"{_TESTS}/backends/test_git_remote.py",),
    ),
    Mutant(
        "images: an id is the name of any image",
        "domain/images.py",
        "        and (registry or not _ID.fullmatch(repository))\n",
        "",
        _IMAGES,
    ),
    Mutant(
        "images: a tag allows every digest",
        "domain/images.py",
        "    if image.digest:\n",
        "    if False:\n",
        _IMAGES,
    ),
    Mutant(
        "images: the engine's own machine is any registry",
        "domain/images.py",
        "    if image.is_at_an_address:\n",
        "    if False:\n",
        _IMAGES,
    ),
    Mutant(
        "images: what was built for one workspace is anybody's",
        "domain/profiles.py",
        "        if image.is_built:\n",
        "        if False:\n",
        (f"{_TESTS}/backends/test_docker_image_names.py",),
    ),
    Mutant(
        "kubernetes: an archive without an end",
        "adapters/kubernetes/transfer_client.py",
        "            if left < 0:\n",
        "            if False:\n",
        _TRANSFERS,
    ),
    Mutant(
        "kubernetes: who got a pod's address is believed",
        "adapters/kubernetes/transfer_client.py",
        "        if not self.holds_its_address():\n",
        "        if False:\n",
        _TRANSFERS,
    ),
    Mutant(
        "images: a forbidden FROM is built",
        "control/dev_images.py",
        """        if refused := forbidden_base(plan.bases, self._deps.check):
            raise Invalid(refused)
""",
        "",
        (f"{_TESTS}/unit/test_dev_images.py",),
    ),
    Mutant(
        "images: a start with an image that is not allowed any more",
        "control/dev_images.py",
        "return not forbidden_base(image.bases, self._deps.check) and await",
        "return await",
        (f"{_TESTS}/unit/test_dev_images.py",),
    ),
)
