"""SSH: one OpenSSH `sshd -i` per connection, as the workspace's user, with the connection as its standard input.

The host key and the owner's public keys come from CodeHub and are kept in the runtime folder of this start, never in the
home. The connection is passed to `sshd`, so none of its bytes go through this process.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile

from .errors import RequestError, invalid
from .holder import shell
from .http1 import Connection

_PLACES = "/usr/sbin:/usr/local/sbin:/opt/codehub/sbin"
_NOT_PASSED_ON = ("HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "TERM")


def configuration(folder: str, env: dict[str, str]) -> str:
    """Return sshd's configuration: key authentication only, and every feature that a desktop IDE needs."""
    lines = [
        f"HostKey {folder}/host_key",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        # The parent folder may belong to another user. The file is in a 0700 folder of this user.
        "StrictModes no",
        "PidFile none",
        "PrintMotd no",
        "PrintLastLog no",
        "UseDNS no",
        "AllowAgentForwarding yes",
        "AllowTcpForwarding yes",
        "AllowStreamLocalForwarding yes",
        "StreamLocalBindUnlink yes",
        "GatewayPorts no",
        "X11Forwarding no",
        "PermitTunnel no",
        "AcceptEnv LANG LC_* TERM_PROGRAM COLORTERM GIT_*",
        # Detects a closed laptop and ends its session.
        "ClientAliveInterval 60",
        "ClientAliveCountMax 10",
        "MaxSessions 100",
        "LogLevel ERROR",
        "Subsystem sftp internal-sftp",
    ]
    pairs = [f'"{name}={value}"' for name, value in sorted(_of_session(env).items()) if _may_be_set(name, value)]
    if pairs:
        lines.append("SetEnv " + " ".join(pairs))
    return "\n".join(lines) + "\n"


def _of_session(env: dict[str, str]) -> dict[str, str]:
    """The environment of an SSH session, in which a forwarded agent comes first.

    sshd would replace the forwarded agent's SSH_AUTH_SOCK by ours. Without a forwarded one, git uses ours.
    """
    session = {name: value for name, value in env.items() if name != "SSH_AUTH_SOCK"}
    agent = env.get("SSH_AUTH_SOCK", "")
    if agent:
        session.setdefault("GIT_SSH_COMMAND", f"SSH_AUTH_SOCK=${{SSH_AUTH_SOCK:-{shlex.quote(agent)}}} ssh")
    return session


def _may_be_set(name: str, value: str) -> bool:
    return name not in _NOT_PASSED_ON and name.isidentifier() and not any(char in value for char in '\n\r\0"\\')


def check_keys(lines: list[str]) -> None:
    for line in lines:
        if "\n" in line or "\r" in line or "\0" in line or len(line) > 16 << 10:
            raise invalid("a public key is one line")


class Sshd:
    def __init__(self, folder: str, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = env
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def program(self) -> str:
        found = shutil.which("sshd", path=_PLACES)
        if found is None:
            raise RequestError(
                501, "SSH_UNAVAILABLE", "this workspace has no OpenSSH server; add openssh-server to its image"
            )
        return found

    def make_host_key(self) -> dict[str, object]:
        """Create a key pair. CodeHub keeps it; nothing of it stays here."""
        keygen = shutil.which("ssh-keygen", path="/usr/bin:/usr/local/bin:/opt/codehub/bin")
        if keygen is None:
            raise RequestError(
                501, "SSH_UNAVAILABLE", "this workspace has no ssh-keygen; add openssh-client to its image"
            )
        with tempfile.TemporaryDirectory(dir=os.path.dirname(self._folder)) as folder:
            path = os.path.join(folder, "key")
            subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True, timeout=30)
            with open(path) as private, open(path + ".pub") as public:
                return {"private_key": private.read(), "public_key": public.read().strip()}

    def configure(self, host_key: str, authorized_keys: list[str]) -> dict[str, object]:
        """Apply the host key and the keys that may sign in. Repeating it changes nothing."""
        program = self.program
        check_keys(authorized_keys)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        os.chmod(self._folder, 0o700)
        _write(os.path.join(self._folder, "host_key"), host_key)
        _write(os.path.join(self._folder, "authorized_keys"), "".join(f"{line}\n" for line in authorized_keys))
        _write(os.path.join(self._folder, "config"), configuration(self._folder, self._env))
        return {"user": self.user, "sshd": program}

    @property
    def user(self) -> str:
        try:
            return pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            return getpass.getuser()

    def reap(self) -> None:
        """Reap connections that have ended: each would count against the workspace's limit of processes."""
        self._children = [child for child in self._children if child.poll() is None]

    @property
    def is_configured(self) -> bool:
        return os.path.exists(os.path.join(self._folder, "config"))

    def serve(self, connection: Connection) -> None:
        """Hand over the connection. Its last owner closes it."""
        fd = connection.sock.fileno()
        os.set_blocking(fd, True)
        child = subprocess.Popen(
            [self.program, "-i", "-f", os.path.join(self._folder, "config")],
            stdin=fd,
            stdout=fd,
            stderr=subprocess.DEVNULL,
            env={**self._env, "SHELL": shell()},
            start_new_session=True,
            preexec_fn=_default_signals,
        )
        self._children.append(child)


def _default_signals() -> None:
    for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _write(path: str, content: str) -> None:
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        file.write(content)
    os.rename(path + ".new", path)
