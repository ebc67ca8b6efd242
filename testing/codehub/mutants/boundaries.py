"""Planted bugs that take away one protection of docs/security.md each: the test that performs the attack must fail.

Those that would send something to an address outside this machine if they went unnoticed are left out.
"""

from __future__ import annotations

from typing import Final

from testing.codehub.mutants.catalog import Mutant

_TESTS = "packages/codehub/tests"
_SOCKETS = (f"{_TESTS}/backends/test_workspace_socket.py",)
_RIGHTS = (f"{_TESTS}/integration/stack/test_rights.py",)
_UNIT_SECRETS = (f"{_TESTS}/integration/deploy/test_unit_secrets.py",)
_SESSIONS = (f"{_TESTS}/integration/api/test_sessions.py",)
_FORGED_SESSIONS = (f"{_TESTS}/integration/api/test_forged_cookies.py",)
_FORGED_COOKIES = (f"{_TESTS}/integration/proxy/test_forged_cookies.py",)
_AUDIT = (f"{_TESTS}/integration/api/test_audit.py",)
_IDLE = (f"{_TESTS}/integration/api/test_idle_connections.py",)
_TARBALL = (f"{_TESTS}/backends/test_tarball.py",)
_UPLOADS = (f"{_TESTS}/unit/workspaced/test_hostile_tars.py",)
_DOORS = (f"{_TESTS}/unit/proxy/test_doors.py",)
_TRANSFER = (f"{_TESTS}/integration/api/test_transfer.py",)
_PROXY_REFUSALS = (f"{_TESTS}/integration/proxy/test_conformance_refusals.py",)


def _process(*names: str) -> tuple[str, ...]:
    return tuple(f"{_TESTS}/backends/test_process_isolation.py::{name}" for name in names)


def _docker(*names: str) -> tuple[str, ...]:
    return tuple(f"{_TESTS}/backends/test_docker_isolation.py::{name}" for name in names)


BOUNDARIES: Final = (
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
        "3: the cookie alone is a session",
        "adapters/postgres/sessions.py",
        " AND s.key_hash = %s",
        " AND (s.key_hash = %s OR true)",
        _SESSIONS,
    ),
    Mutant(
        "3: any cookie will do for the key of a session",
        "adapters/postgres/sessions.py",
        "WHERE s.secret_hash = ANY(%s) AND s.key_hash = %s",
        "WHERE (s.secret_hash = ANY(%s) OR true) AND s.key_hash = %s",
        _SESSIONS,
    ),
    Mutant(
        "3: forged sessions lock out the dashboard",
        "api/context.py",
        "cookie_values(sent, name) if value]",
        "cookie_values(sent, name)[:4] if value]",
        _FORGED_SESSIONS,
    ),
    Mutant(
        "3: large cookies lock out terminals",
        "api/server.py",
        'if name.lower() != b"cookie":',
        "if True:",
        _FORGED_SESSIONS,
    ),
    Mutant(
        "3: forged cookies lock out a workspace",
        "domain/cookies.py",
        "MAX_OF_ONE_NAME: Final = 180",
        "MAX_OF_ONE_NAME: Final = 4",
        _FORGED_COOKIES,
    ),
    Mutant(
        "3: a guest's planted cookie locks out the owner",
        "adapters/postgres/proxy_access.py",
        "ORDER BY u.id <> w.owner_user_id, ",
        "ORDER BY u.id = w.owner_user_id, ",
        _FORGED_COOKIES,
    ),
    Mutant(
        "3: other hosts of the site can set the cookies",
        "proxy/admission/addresses.py",
        "return HOST_PREFIX + name if self.secure and self.host_pattern else name",
        "return name",
        _FORGED_COOKIES,
    ),
    Mutant(
        "14: no limit for the size of the API's heads",
        "api/server.py",
        "if self._head_bytes > _MAX_HEAD_BYTES and",
        "if False and",
        _FORGED_SESSIONS,
    ),
    Mutant(
        "4: the machine's loopback by way of slirp4netns",
        "adapters/process/netns.py",
        '        "--disable-host-loopback",\n',
        "",
        _process("test_services_of_this_machine_are_not_reached"),
    ),
    Mutant(
        "4: the machine's own addresses are reached",
        "adapters/process/launch_plan.py",
        "blocked_networks(_own_addresses(), self._options.allowed_networks)",
        "blocked_networks([], self._options.allowed_networks)",
        _process("test_the_internet_is_reached_and_names_are_asked_for_inside"),
    ),
    Mutant(
        "4: link-local is reached",
        "domain/networks.py",
        '_NEVER = ("0.0.0.0/8", LINK_LOCAL, *CLOUD_SERVICES, ',
        '_NEVER = ("0.0.0.0/8", *CLOUD_SERVICES, ',
        _process("test_a_listener_at_a_link_local_address_is_not_reached"),
    ),
    Mutant(
        "4: private networks are reached",
        "domain/networks.py",
        "(*map(IPv4Network, _NEVER), *private, *machine)",
        "(*map(IPv4Network, _NEVER), *machine)",
        _process("test_neither_metadata_nor_private_networks_are_reached"),
    ),
    Mutant(
        "5: a port of the machine for an IDE",
        "adapters/process/launch_plan.py",
        "bridged = not by_socket and bool(isolation.slirp)",
        "bridged = False",
        _process("test_an_ides_port_cannot_be_taken_by_another_workspace"),
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
        "10: attempts on an account are not slowed down",
        "services/lockout.py",
        "account_s = 0.0 if familiar else pace_s(by_account, FREE_FOR_ACCOUNT)",
        "account_s = 0.0",
        _AUDIT,
    ),
    Mutant(
        "10: what others do slows down the owner",
        "services/lockout.py",
        "account_s = 0.0 if familiar else pace_s(by_account, FREE_FOR_ACCOUNT)",
        "account_s = pace_s(by_account, FREE_FOR_ACCOUNT)",
        _AUDIT,
    ),
    Mutant(
        "10: guesses fill the owner's queue of password checks",
        "services/passwords.py",
        "queue = self._familiar if familiar else self._strangers",
        "queue = self._strangers",
        _AUDIT,
    ),
    Mutant(
        "14: endless interim responses of a workspace's helper",
        "adapters/workspaced_client.py",
        "head_left: int | None = _LONGEST_HEAD",
        "head_left: int | None = None",
        (f"{_TESTS}/integration/test_hostile_helper.py",),
    ),
    Mutant(
        "14: no limit for the API's heads",
        "api/server.py",
        "self._awaiting_head = self.loop.call_later(_HEAD_TIMEOUT_S, self.transport.abort)",
        "self._awaiting_head = self.loop.call_later(3600, self.transport.abort)",
        _IDLE,
    ),
    Mutant(
        "14: no cap for an address at the API",
        "api/server.py",
        "self._admitted = self.cap.admit(self._address)",
        "self._admitted = self.cap.admit(self._address) or True",
        _IDLE,
    ),
    Mutant(
        "14: no limit for the proxy's heads",
        "proxy/connections/client.py",
        "                self.deadline = self._server.clock.now + HEAD_TIMEOUT_S\n",
        "                pass\n",
        _PROXY_REFUSALS,
    ),
    Mutant(
        "15: tokens survive a new password",
        "services/accounts.py",
        "            gone += await sessions.delete_tokens_of(tx, who.user_id)\n",
        "",
        _SESSIONS,
    ),
    Mutant(
        "15: tokens survive an administrator's reset",
        "services/users.py",
        "gone += await sessions.delete_tokens_of(tx, user_id)",
        "pass",
        _SESSIONS,
    ),
    Mutant(
        "15: sign-in links survive the end of their session",
        "adapters/postgres/sessions.py",
        '    await tx.execute("DELETE FROM login_links WHERE user_id = %s AND token_id IS NULL", [user_id])\n',
        "    return\n",
        (f"{_TESTS}/integration/api/test_login_links.py",),
    ),
    Mutant(
        "16: any depth is archived",
        "adapters/tarball/pack.py",
        "if depth <= MAX_DEPTH and len(path) <= MAX_PATH:",
        "if len(path) <= MAX_PATH:",
        _TARBALL,
    ),
    Mutant(
        "16: any path is archived",
        "adapters/tarball/pack.py",
        "if depth <= MAX_DEPTH and len(path) <= MAX_PATH:",
        "if depth <= MAX_DEPTH:",
        _TARBALL,
    ),
    Mutant(
        "16: an archive is not read back through the parser",
        "adapters/objectstore/transfer.py",
        "            for _ in TarStream(chunks):\n                job.check()\n",
        "            for _ in chunks:\n                job.check()\n",
        (f"{_TESTS}/backends/test_local_dir.py",),
    ),
    Mutant(
        "16: set-uid bits are kept",
        "adapters/tarball/unpack.py",
        "            mode &= ~(stat.S_ISUID | stat.S_ISGID)\n",
        "            pass\n",
        _TARBALL,
    ),
    Mutant(
        "17: the archives of an older version stay readable",
        "cli/stack/datadir.py",
        '        (path / "archives").chmod(0o700)  # created by a version that let others read it\n',
        "        pass\n",
        (f"{_TESTS}/unit/test_data_dir_modes.py",),
    ),
    Mutant(
        "17: PostgreSQL and Valkey as a user of other services",
        "adapters/embedded/account.py",
        '_SHARED_NAMES = frozenset({"nobody", "daemon", "bin", "sys", "www-data", "postgres"})',
        "_SHARED_NAMES = frozenset({''})",
        (f"{_TESTS}/integration/stack/test_rights.py::test_a_user_that_is_somebody_elses_is_refused",),
    ),
    Mutant(
        "19: nothing is recorded",
        "services/audit.py",
        "    await statements.record(\n        tx,\n        AuditEvent(\n            at=at,",
        "    statements.record(\n        tx,\n        AuditEvent(\n            at=at,",
        _AUDIT,
    ),
    Mutant(
        "tar: a hard link may go through a link",
        "workspaced/tars.py",
        "if _through_link(staging, member.linkname) or os.path.islink(target) or not os.path.isfile(target):",
        "if not os.path.exists(target):",
        _UPLOADS,
    ),
    Mutant(
        "tar: a link may lead back and out",
        "workspaced/tars.py",
        "            below = True\n",
        "            depth += 1\n",
        _UPLOADS,
    ),
    Mutant(
        "ports: shared under a path",
        "domain/doors.py",
        'return setting or ("link" if host_pattern else "owner")',
        'return setting or "link"',
        _DOORS,
    ),
    Mutant(
        "ports: loaded by pages of other workspaces",
        "proxy/admission/cross_origin.py",
        "    return not own_host or not is_sibling_port(sender, own.decode())\n",
        "    return not own_host\n",
        ("e2e/test_port_cross_origin.py",),
    ),
    Mutant(
        "ports: links survive a transfer",
        "adapters/postgres/workspaces.py",
        '    await tx.execute("DELETE FROM port_links WHERE workspace_id = %s", [workspace_id])\n',
        "",
        _TRANSFER,
    ),
    Mutant(
        "ports: shares survive a transfer",
        "adapters/postgres/workspaces.py",
        '    await tx.execute("DELETE FROM workspace_ports WHERE workspace_id = %s", [workspace_id])\n',
        "",
        _TRANSFER,
    ),
)
