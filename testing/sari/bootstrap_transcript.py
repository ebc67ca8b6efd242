"""Writes docs/sari/show.md from a real run: installs sari on a fresh machine, upgrades it under load, and removes it.

Run as root: `python -m testing.sari.bootstrap_transcript [FOLDER]`, where an existing FOLDER is such a machine from an
earlier run. The machine is a Debian created by debootstrap with python3 and nothing else, in a separate sandbox (bwrap).
sari and its dependencies come from a folder of wheels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sari.install.clients import CLIENTS, Machine, Scope
from testing.sari.wheels import sari_wheel, wheels

_REPOSITORY = Path(__file__).resolve().parents[2]
_FIRST, _SECOND = "3.0.0", "3.1.0"
_PATH = "/root/.local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# Four clients that search continuously until they are stopped. The last line is the result.
_LOAD = """import json, pathlib, subprocess, threading
calls, failed, stop = [0] * 4, [0] * 4, pathlib.Path("/tmp/stop")
def client(number):
    shim = subprocess.Popen(["sari", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    def ask(identifier, method, params):
        shim.stdin.write(json.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}) + "\\n")
        shim.stdin.flush()
        return json.loads(shim.stdout.readline())
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
    ask(0, "initialize", hello)
    while not stop.exists():
        calls[number] += 1
        answer = ask(calls[number], "tools/call", {"name": "search", "arguments": {"query": "def main"}})
        failed[number] += answer.get("result", {}).get("structuredContent", {}).get("total") != 1
threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(f"{sum(calls)} calls by 4 clients, {sum(failed)} failed")
"""

_LIFE = (
    ("A machine without sari and without ensurepip", (
        "python3 --version", "python3 -c 'import ensurepip' 2>&1 | tail -1", "command -v sari || echo 'no sari here'")),
    ("Install sari from wheels and configure Codex", (
        f"./bootstrap.sh --wheel wheels/sari-{_FIRST}-py3-none-any.whl --wheels wheels --host codex",)),
    ("Use it", (
        "cd ~/my-project && sari search 'def main'", "cd ~/my-project && sari symbols main", "sari status")),
    ("Install again: nothing changes, and the running daemon is reused", (
        f"./bootstrap.sh --wheel wheels/sari-{_FIRST}-py3-none-any.whl --wheels wheels",)),
    ("Upgrade while four clients are searching", (
        "cd ~/my-project && python3 ../load.py > ~/load.txt & sleep 5",
        f"sari upgrade --wheel wheels/sari-{_SECOND}-py3-none-any.whl --wheels wheels",
        "sleep 5; touch /tmp/stop; until [ -s ~/load.txt ]; do sleep 1; done; cat ~/load.txt",
        "sari daemon status")),
    ("A failed upgrade leaves the old version in place", (
        "echo 'cut off' > sari-3.2.0-py3-none-any.whl; sari upgrade --wheel sari-3.2.0-py3-none-any.whl",
        "sari --version")),
    ("Check the installation", ("cd ~/my-project && sari doctor",)),
    ("Uninstall; the registry and the indexes stay", (
        "sari self uninstall", "cat ~/.codex/config.toml", "ls ~/.local/share/sari")),
)  # fmt: skip
_CONFIGURED = {
    "codex": '# mine\nmodel = "x"   # as it was\n\n[mcp_servers.docs]\ncommand = "docs"\n',
    "gemini": '{\n  // my theme\n  "ui": {"theme": "Dark"},\n  "mcpServers": {}\n}\n',
    "claude": '{"numStartups":7,"mcpServers":{"docs":{"command":"docs"}}}',
    "cursor": '{\n\t"mcpServers": {\n\t\t"docs": {"command": "docs"}, // keep\n\t},\n}\n',
    "vscode": '{\r\n  "inputs": [],\r\n  "servers": {}\r\n}\r\n',
}


class Box:
    """The machine."""

    def __init__(self, place: Path, made: str | None) -> None:
        self._tree = place / "machine"
        if made is None:
            make = ["debootstrap", "--variant=minbase", "--include=python3", "bookworm", str(self._tree)]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        else:
            subprocess.run(["cp", "-a", made, str(self._tree)], check=True)
        for shared in ("etc/resolv.conf", "etc/apt/apt.conf.d"):
            self._share(Path("/") / shared, self._tree / shared)
        sari = self._tree / "opt" / "sari"
        shutil.copytree(wheels(), sari / "wheels")
        for wheel in (sari_wheel(_FIRST), sari_wheel(_SECOND)):
            shutil.copy(wheel, sari / "wheels")
        for name in ("bootstrap.sh", "install.py"):
            shutil.copy(_REPOSITORY / name, sari)
        self.write("my-project/.git/HEAD", "ref: refs/heads/main\n")
        self.write("my-project/main.py", "def main():\n    print('hello')\n")
        self.write("load.py", _LOAD)

    @staticmethod
    def _share(source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source.resolve(), target)

    def write(self, name: str, text: str) -> None:
        file = self._tree / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())

    def run(self, sections: tuple[tuple[str, tuple[str, ...]], ...], before: str = "") -> str:
        """Run all sections in one shell, like one user in one terminal, and return the transcript as Markdown."""
        script = ["exec 2>&1", "cd /opt/sari", before]
        for title, commands in sections:
            script.append(f"printf '%s\\n' {_quoted(f'## {title}')} '' '```text'")
            for command in commands:
                script += [f"cd /opt/sari; printf '%s\\n' {_quoted('$ ' + command)}", command]
            script.append("printf '%s\\n' '```' ''")
        environment = {"HOME": "/root", "PATH": _PATH, "LANG": "C.UTF-8", "PIP_NO_COMPILE": "1"}
        environment |= {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
        box = ["bwrap", "--bind", str(self._tree), "/", "--dev", "/dev", "--proc", "/proc"]
        box += [
            "--perms",
            "1777",
            "--tmpfs",
            "/tmp",
            "--unshare-pid",
            "--die-with-parent",
            "--cap-add",
            "ALL",
            "bash",
            "-c",
            "\n".join(script),
        ]
        done = subprocess.run(box, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _hosts(box: Box) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Write each client's configuration file, with some content of its user, and return the sections."""
    sections = []
    for client in CLIENTS.values():
        file = client.file(Scope.USER, Machine(Path("/root"), platform="linux"), Path("/"))
        box.write(str(file.relative_to("/root")), _CONFIGURED[client.name])
        commands = (
            f"sha256sum {file} | tee /tmp/before",
            f"sari install --host {client.name}",
            f"sari install --host {client.name}",
            f"sari uninstall --host {client.name} | tail -1",
            "sha256sum --check /tmp/before",
        )
        sections.append((f"{client.title}: install twice, then uninstall to the byte", commands))
    return tuple(sections)


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="sari-transcript-"))
    try:
        box = Box(place, sys.argv[1] if len(sys.argv) > 1 else None)
        box.write(".codex/config.toml", "# mine\n")
        life = box.run(_LIFE)
        again = f"./bootstrap.sh --wheel wheels/sari-{_FIRST}-py3-none-any.whl --wheels wheels > /dev/null"
        hosts = box.run(_hosts(box), again)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    head = (
        "# A first installation, recorded\n\nThis is the recording of a real session on a Debian 12 that had only "
        "python3, made by `python -m testing.sari.bootstrap_transcript`. sari was installed from a folder of wheels. The "
        "same steps are tests (`test_bootstrap.py`, `test_install_command.py`, `test_install_undo.py`).\n\n"
    )
    # Omit messages of Debian's tools about the missing terminal.
    text = re.sub(r"^(?:[WE]|debconf): .*\n", "", head + life + hosts, flags=re.MULTILINE)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).rstrip("\n") + "\n"
    (_REPOSITORY / "docs" / "sari" / "show.md").write_text(text)


if __name__ == "__main__":
    main()
