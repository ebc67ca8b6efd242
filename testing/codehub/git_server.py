"""A real git server for tests: `git http-backend` behind nginx over HTTPS with passwords, and OpenSSH's sshd.

It runs in a separate network namespace, reached over a veth pair, because process workspaces reach neither the machine's
loopback nor its own addresses. Tests allow workspaces to reach it with CODEHUB_INSTANCE_NETWORKS.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from testing.codehub.lfs_server import SSH_PATH, lfs_server
from testing.codehub.own_network import make_certificates, namespace_with_address

USER, TOKEN = "alice", "t0ken-which-must-never-be-in-a-home"
OTHER_USER, OTHER_TOKEN = "bob", "t0ken-of-the-other-host"
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_NGINX = """
worker_processes 1; daemon off; master_process off; pid {place}/nginx.pid; error_log {place}/nginx.log; user root;
events {{ worker_connections 256; }}
http {{ access_log {place}/access.log; client_max_body_size 0;
 client_body_temp_path {place}/t1; proxy_temp_path {place}/t2; fastcgi_temp_path {place}/t3; uwsgi_temp_path {place}/t4;
 scgi_temp_path {place}/t5;
 server {{ listen {address}:443 ssl; ssl_certificate {place}/cert.pem; ssl_certificate_key {place}/key.pem;
  location /lfs/ {{ auth_basic git; auth_basic_user_file {place}/passwords; proxy_pass http://unix:{place}/lfs.sock:;
   proxy_set_header Host $http_host; }}
  location /private/ {{ auth_basic git; auth_basic_user_file {place}/passwords; fastcgi_param REMOTE_USER $remote_user;
   include {place}/backend; }}
  location /public/ {{ include {place}/backend; }}
  location /slow/ {{ limit_rate 2m; include {place}/backend; }}
  location /steady/ {{ limit_rate 20m; include {place}/backend; }}
  location /held/ {{ fastcgi_buffering off; include {place}/backend; }}
  location /moved/ {{ return 302 https://{address}:8443$request_uri; }}
  location / {{ return 404; }} }}
 log_format given '$request_uri "$http_authorization"';
 server {{ listen {address}:8443 ssl; ssl_certificate {place}/cert.pem; ssl_certificate_key {place}/key.pem;
  access_log {place}/elsewhere.log given;
  location /other/ {{ auth_basic other; auth_basic_user_file {place}/other-passwords;
   fastcgi_param REMOTE_USER $remote_user; include {place}/backend; }}
  location / {{ add_header WWW-Authenticate 'Basic realm="elsewhere"' always; return 401; }} }} }}
"""
_BACKEND = """
fastcgi_pass unix:{place}/fcgi.sock; fastcgi_param SCRIPT_FILENAME /usr/lib/git-core/git-http-backend;
fastcgi_param GIT_PROJECT_ROOT {place}/repos; fastcgi_param GIT_HTTP_EXPORT_ALL 1;
fastcgi_param PATH_INFO $uri; fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method;
fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
fastcgi_param GIT_PROTOCOL $http_git_protocol; fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;
fastcgi_param GIT_CONFIG_COUNT 3;
fastcgi_param GIT_CONFIG_KEY_0 uploadpack.allowFilter; fastcgi_param GIT_CONFIG_VALUE_0 true;
fastcgi_param GIT_CONFIG_KEY_1 safe.directory; fastcgi_param GIT_CONFIG_VALUE_1 *;
fastcgi_param GIT_CONFIG_KEY_2 uploadpack.packObjectsHook; fastcgi_param GIT_CONFIG_VALUE_2 {place}/pack.sh;
fastcgi_read_timeout 600;
"""
# Sends half of what is cloned from a repository that is held, and the rest once it is released, unless it is broken off.
_PACK = """#!/bin/sh
[ -e held ] || exec "$@"
echo clone >> clones
pack=$(mktemp) && trap 'rm -f "$pack"' EXIT
"$@" > "$pack"
half=$(($(stat -c %s "$pack") / 2))
head -c $half "$pack"
while [ -e held ]; do sleep 0.1; done
[ ! -e broken ] || exit 1
tail -c +$((half + 1)) "$pack"
"""
_SSHD = """
Port 22
ListenAddress {address}
HostKey {place}/host_key
AuthorizedKeysFile {place}/authorized_keys
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
SetEnv PATH={place}/bin:/usr/local/bin:/usr/bin:/bin
"""
# What git-lfs runs over SSH to learn where the files are, and with which credential it gets them.
_LFS_AUTHENTICATE = """#!/bin/sh
echo "$*" >> {place}/lfs-authenticate.log
echo '{{"href": "https://{address}{path}", "header": {{"Authorization": "Basic {basic}"}}}}'
"""


@dataclass(frozen=True)
class HeldRepository:
    url: str
    file: Path

    def release(self) -> None:
        self.file.unlink()

    def break_off(self) -> None:
        """End what is being cloned in the middle. A later clone gets everything."""
        (self.file.parent / "broken").touch()
        self.release()

    def clones(self) -> int:
        """Return how often its contents were asked for while it was held."""
        return (self.file.parent / "clones").read_text().count("clone")


@dataclass(frozen=True)
class GitServer:
    place: Path
    address: str

    @property
    def network(self) -> str:
        return f"{self.address}/32"

    @property
    def ca_file(self) -> Path:
        return self.place / "ca.pem"

    def url(self, name: str) -> str:
        """Return a URL. `private/NAME` needs the password; `slow/NAME` is sent at 2 MB/s, `steady/NAME` at 20."""
        return f"https://{self.address}/{name}.git"

    def other_url(self, name: str) -> str:
        """Return a URL on another host, as far as git and credentials go; `other/NAME` needs the other password."""
        return f"https://{self.address}:8443/{name}.git"

    def ssh_url(self, name: str) -> str:
        return f"ssh://root@{self.address}{self.place}/repos/{name}.git"

    def authorize(self, public_key: str) -> None:
        (self.place / "authorized_keys").write_text(public_key + "\n")

    def make(self, name: str, files: Mapping[str, str | bytes], *, branch: str = "main") -> Path:
        """Create a bare repository with one commit and return its folder."""
        bare = self.place / "repos" / f"{name}.git"
        with tempfile.TemporaryDirectory() as work:
            git(work, "init", "-q", "-b", branch)
            for path, content in files.items():
                target = Path(work, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content if isinstance(content, bytes) else content.encode())
                if str(path).endswith(".sh"):
                    target.chmod(0o755)
            git(work, "add", "-A")
            git(work, "commit", "-q", "-m", "First")
            git(work, "clone", "-q", "--bare", work, str(bare))
        return bare

    def make_held(self, name: str) -> HeldRepository:
        """Create `held/NAME`, of which a clone receives half until it is released."""
        bare = self.make(f"held/{name}", {f"file{number}": os.urandom(5_000) for number in range(400)})
        held = HeldRepository(self.url(f"held/{name}"), bare / "held")
        held.file.touch()
        return held

    def make_with_submodule(self, name: str, part: str, url: str) -> None:
        """Create a repository whose folder `part` is the existing repository `part`, fetched from `url`."""
        bare = self.make(name, {"README.md": "whole\n"})
        commit = git(self.place / "repos" / f"{part}.git", "rev-parse", "main").strip()
        with tempfile.TemporaryDirectory() as work:
            git("/", "clone", "-q", str(bare), work)
            Path(work, ".gitmodules").write_text(f'[submodule "part"]\n\tpath = part\n\turl = {url}\n')
            git(work, "add", "-A")
            git(work, "update-index", "--add", "--cacheinfo", f"160000,{commit},part")
            git(work, "commit", "-q", "-m", "Add part")
            git(work, "push", "-q", "origin", "HEAD")

    def make_large(self, name: str, file: str, content: bytes, *, names_server: bool = True) -> None:
        """Create a repository whose file is in Git LFS. Unless it names the server, git-lfs finds it by the remote."""
        oid = hashlib.sha256(content).hexdigest()
        (self.place / "lfs-objects" / oid).write_bytes(content)
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"
        config = f"[lfs]\n\turl = https://{self.address}/lfs/\n"
        attributes = f"{file} filter=lfs diff=lfs merge=lfs -text\n"
        self.make(
            name, {file: pointer, ".gitattributes": attributes, **({".lfsconfig": config} if names_server else {})}
        )

    def lfs_authenticated(self) -> str:
        """Return what git-lfs asked for over SSH."""
        return (self.place / "lfs-authenticate.log").read_text()

    def elsewhere_log(self) -> str:
        """Return what was requested from port 8443, another host for git, with the credentials that it was given."""
        return (self.place / "elsewhere.log").read_text()

    def log(self) -> str:
        return (self.place / "access.log").read_text()


def git(cwd: str | Path, *words: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", *identity, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": _PATH, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_LFS_SKIP_SMUDGE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def running_git_server() -> Iterator[GitServer]:
    place = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    place.chmod(0o755)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with namespace_with_address() as (namespace, address):
            make_certificates(place, address)
            _write_password(place / "passwords", USER, TOKEN)
            _write_password(place / "other-passwords", OTHER_USER, OTHER_TOKEN)
            (place / "bin").mkdir()
            basic = base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
            authenticate = place / "bin/git-lfs-authenticate"
            authenticate.write_text(
                _LFS_AUTHENTICATE.format(place=place, address=address, basic=basic, path=SSH_PATH)
            )
            authenticate.chmod(0o755)
            (place / "repos").mkdir()
            (place / "authorized_keys").touch()
            (place / "access.log").touch()
            (place / "backend").write_text(_BACKEND.format(place=place))
            (place / "pack.sh").write_text(_PACK)
            (place / "pack.sh").chmod(0o755)
            (place / "nginx.conf").write_text(_NGINX.format(place=place, address=address))
            (place / "sshd.conf").write_text(_SSHD.format(place=place, address=address))
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / "host_key"], check=True)
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
            inside = ["ip", "netns", "exec", namespace]
            commands = [
                [shutil.which("fcgiwrap", path=_PATH) or "fcgiwrap", "-c", "4", "-s", f"unix:{place}/fcgi.sock"],
                [
                    *inside,
                    shutil.which("nginx", path=_PATH) or "nginx",
                    "-c",
                    f"{place}/nginx.conf",
                    "-p",
                    str(place),
                ],
                [*inside, shutil.which("sshd", path=_PATH) or "sshd", "-D", "-e", "-f", f"{place}/sshd.conf"],
            ]
            for command in commands:
                with (place / "output.log").open("ab") as log:
                    processes.append(
                        subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env={"PATH": _PATH})
                    )
            for port in (443, 8443, 22):
                _wait_for(address, port, place)
            with lfs_server(place, f"https://{address}"):
                yield GitServer(place, address)
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(place, ignore_errors=True)


def _write_password(path: Path, user: str, password: str) -> None:
    words = ["openssl", "passwd", "-apr1", password]
    hashed = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    path.write_text(f"{user}:{hashed}\n")


def _wait_for(address: str, port: int, place: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
            return
        assert time.monotonic() < deadline, (place / "output.log").read_text()
        time.sleep(0.05)
