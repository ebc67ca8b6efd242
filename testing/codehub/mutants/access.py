"""Planted bugs in sessions, sign-in, tokens, shared ports, transfers and the audit trail (docs/security.md)."""

from __future__ import annotations

from typing import Final

from testing.codehub.mutants.catalog import Mutant

_TESTS = "packages/codehub/tests"
_SESSIONS = (f"{_TESTS}/integration/api/test_sessions.py",)
_FORGED_SESSIONS = (f"{_TESTS}/integration/api/test_forged_cookies.py",)
_FORGED_COOKIES = (f"{_TESTS}/integration/proxy/test_forged_cookies.py",)
_AUDIT = (f"{_TESTS}/integration/api/test_audit.py",)
_DOORS = (f"{_TESTS}/unit/proxy/test_doors.py",)
_TRANSFER = (f"{_TESTS}/integration/api/test_transfer.py",)


ACCESS: Final = (
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
        "19: nothing is recorded",
        "services/audit.py",
        "    await statements.record(\n        tx,\n        AuditEvent(\n            at=at,",
        "    statements.record(\n        tx,\n        AuditEvent(\n            at=at,",
        _AUDIT,
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
    Mutant(
        "transfer: while an instance may run",
        "domain/actions.py",
        "workspace.phase in (Phase.ERROR, Phase.STANDBY) and not",
        "workspace.phase is Phase.ERROR and not",
        (f"{_TESTS}/unit/domain/test_action_rules.py",),
    ),
)
