"""code-server for the process runtime: installed step by step into `IDE_DIR/code-server-VERSION`, completely or not at all.

Each completed step is recorded, so an interrupted install resumes. npm checks every package against the hashes in
code-server's shrinkwraps. code-server itself is checked against our lock file, which anchors that chain.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.ide.node import NodeLock, finish_npm, put_node
from codehub.adapters.ide.npm import only_one, readable_by_all, run_npm
from codehub.domain.errors import Terminal, Transient
from codehub.domain.model import Progress
from codehub.ports.fence import Report

# Extensions that are useless here and take a third of the space.
_DROPPED_EXTENSIONS = ("copilot", "mermaid-markdown-features", "microsoft-authentication")
# Packages of the editor that nothing here loads: 180 MB for chat and for Windows. They are not even fetched.
_DROPPED_PACKAGES = (
    "@github/copilot-sdk",
    "@microsoft/mxc-sdk",
    "@vscode/windows-process-tree",
    "@vscode/windows-registry",
)
# Exists once `_finish` has run. Changing the number runs it again on installs of older versions.
_FINISHED = "finished-4"
_START = """#!/bin/sh
# Starts code-server on its own Node. A chat pane nobody asked for would steal the keyboard, and its empty place a quarter
# of the window: off unless turned on.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
settings="${XDG_DATA_HOME:-$HOME/.local/share}/code-server/User"
if [ ! -e "$settings/settings.json" ]; then
    mkdir -p "$settings"
    printf '{"chat.disableAIFeatures": true, "workbench.secondarySideBar.defaultVisibility": "hidden"}\\n' \\
        > "$settings/settings.json"
fi
exec "$here/node/bin/node" "$here/node_modules/code-server/out/node/entry.js" "$@"
"""
# In the IDE's own terminals, VS Code's `code` comes first on PATH and knows its window.
_CODE = """#!/bin/sh
# `code FILE` in a shell outside of the IDE (SSH, `codehub ws exec`, the web terminal): opens the file in the open window.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
find_window='
const request = {
  socketPath: process.argv[1],
  path: "/session?filePath=" + encodeURIComponent(process.cwd() + "/"),
};
const fail = () => process.exit(1);
require("http").get(request, (answer) => {
  let text = "";
  answer.on("data", (piece) => { text += piece; });
  answer.on("end", () => {
    try { process.stdout.write(JSON.parse(text).socketPath); } catch { fail(); }
  });
}).on("error", fail);'
if [ -z "$VSCODE_IPC_HOOK_CLI" ]; then
    sessions="${XDG_DATA_HOME:-$HOME/.local/share}/code-server/code-server-ipc.sock"
    VSCODE_IPC_HOOK_CLI=$("$here/node/bin/node" -e "$find_window" "$sessions") || {
        echo "code: no window of this workspace is open. Open the workspace in your browser, then try again." >&2
        exit 1
    }
    export VSCODE_IPC_HOOK_CLI
fi
# By `sh`: an image may have no /usr/bin/env, which the script names.
exec /bin/sh "$here/node_modules/code-server/lib/vscode/bin/remote-cli/code" "$@"
"""


@dataclass(frozen=True, slots=True)
class CodeServerLock:
    version: str
    integrity: str
    node: NodeLock

    @classmethod
    def load(cls) -> CodeServerLock:
        raw = json.loads(files("codehub.adapters.ide").joinpath("code-server.lock.json").read_text())
        node = raw["node"]
        return cls(
            raw["code-server"]["version"],
            raw["code-server"]["integrity"],
            NodeLock(node["package"], node["version"], tuple(node["sha256"])),
        )


class CodeServerInstall:
    """Installs code-server.

    Blocking: run it in a worker thread. A second install in the same directory waits for the first.
    """

    def __init__(self, ide_dir: Path, lock: CodeServerLock | None = None) -> None:
        self._dir = ide_dir
        self._lock = lock or CodeServerLock.load()
        self.home = ide_dir / f"code-server-{self._lock.version}"
        self._partial = ide_dir / f"code-server-{self._lock.version}.partial"

    @property
    def bin_dir(self) -> Path:
        return self.home / "bin"

    @property
    def node_dir(self) -> Path:
        """Return the directory of `node`, `npm` and `npx`."""
        return self.home / "node/bin"

    @property
    def installed(self) -> bool:
        return (self.bin_dir / "code-server").is_file()

    def ensure(self, report: Report) -> Path:
        """Install code-server if needed and return the directory of `code-server`."""
        if not self._is_finished():
            self._dir.mkdir(parents=True, exist_ok=True, mode=0o755)
            with only_one(self._dir / ".install.lock"):
                if not self.installed:
                    self._install(report)
                if not self._is_finished():
                    self._finish()
        return self.bin_dir

    def _is_finished(self) -> bool:
        return self.installed and (self.home / _FINISHED).exists()

    def _finish(self) -> None:
        """Complete it: `code FILE` in every shell, log files, and an npm that installs into the home."""
        package = self.home / "node_modules/code-server"
        cli = package / "lib/vscode/bin/remote-cli"
        if cli.is_dir():
            _link(cli / "code", "code-linux.sh")
            _link(package / "lib/node", "../../../node/bin/node")
            code = self.bin_dir / "code"
            code.write_text(_CODE)
            code.chmod(0o755)
        _replace_native_log(package / "lib/vscode/node_modules/@vscode/spdlog")
        finish_npm(self.home / "node")
        (self.home / _FINISHED).touch(mode=0o644)

    def _install(self, report: Report) -> None:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("node", self._node),
            ("code-server", self._code_server),
            ("editor", self._editor),
            ("extensions", self._extensions),
            ("trim", self._trim),
        ]
        self._partial.mkdir(exist_ok=True, mode=0o755)
        done_file = self._partial / "steps.done"
        done = done_file.read_text().split() if done_file.exists() else []
        for number, (name, step) in enumerate(steps):
            report(Progress(f"install code-server: {name}", number, len(steps), "steps"))
            if name not in done:
                step()
                done.append(name)
                done_file.write_text("\n".join(done))
        report(Progress("install code-server", len(steps), len(steps), "steps"))
        self._partial.rename(self.home)

    @property
    def _package(self) -> Path:
        return self._partial / "node_modules/code-server"

    def _node(self) -> None:
        put_node(self._lock.node, self._partial / "node", self._partial / "scratch")
        remove_tree(self._partial / "scratch")

    def _code_server(self) -> None:
        remove_tree(self._partial / "node_modules")
        (self._partial / "package.json").write_text('{"private": true}\n')
        self._npm(self._partial, "install", "--save-exact", f"code-server@{self._lock.version}")
        recorded = json.loads((self._partial / "node_modules/.package-lock.json").read_text())
        integrity = recorded["packages"]["node_modules/code-server"].get("integrity")
        if integrity != self._lock.integrity:
            remove_tree(self._partial)
            raise Terminal(
                f"code-server {self._lock.version} from the npm registry is not the one in the lock file "
                f"({integrity} instead of {self._lock.integrity}): nothing of it was kept"
            )

    def _editor(self) -> None:
        editor = self._package / "lib/vscode"
        remove_tree(editor / "node_modules")
        _leave_out(_DROPPED_PACKAGES, editor)
        self._npm(editor, "install", "--omit=dev")
        for link, target in (("remote-cli/code-server", "code-linux.sh"), ("helpers/browser.sh", "browser-linux.sh")):
            _link(editor / "bin" / link, target)

    def _extensions(self) -> None:
        extensions = self._package / "lib/vscode/extensions"
        for name in _DROPPED_EXTENSIONS:
            remove_tree(extensions / name)
        remove_tree(extensions / "node_modules")
        self._npm(extensions, "install", "--omit=dev")

    def _trim(self) -> None:
        editor = self._package / "lib/vscode/node_modules"
        for pattern in ("**/prebuilds/*", "@vscode/ripgrep-universal/bin/*", "**/bin/*-*"):
            for place in list(editor.glob(pattern)):
                if _is_foreign(place.name):
                    remove_tree(place)
        remove_tree(self._partial / "node/lib/node_modules/corepack")
        start = self._partial / "bin/code-server"
        start.parent.mkdir(exist_ok=True)
        start.write_text(_START)
        start.chmod(0o755)
        readable_by_all(self._partial)

    def _npm(self, cwd: Path, *arguments: str) -> None:
        if output := run_npm(self._partial / "node", cwd, *arguments):
            raise Transient(
                f"npm could not install code-server's parts (the next attempt continues from here): {output}"
            )


def _leave_out(packages: Sequence[str], folder: Path) -> None:
    """Remove packages and their exclusive dependencies from package.json and its shrinkwrap. All other hashes stay."""
    for path in (folder / "package.json", folder / "npm-shrinkwrap.json"):
        if not path.exists():
            continue
        content = json.loads(path.read_text())
        locked = content.get("packages", {})
        for name in packages:
            content.get("dependencies", {}).pop(name, None)
            locked.get("", {}).get("dependencies", {}).pop(name, None)
            for place in [place for place in locked if place.startswith(f"node_modules/{name}")]:
                del locked[place]
        path.write_text(json.dumps(content, indent=2))


def _is_foreign(name: str) -> bool:
    """Return whether a directory is named for another platform."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    systems = ("linux", "darwin", "win32", "alpine", "linuxmusl", "android", "freebsd")
    words = name.lower().replace("_", "-").split("-")
    if not any(system in words for system in systems):
        return False
    return "linux" not in words or machine not in words or "musl" in words


def _replace_native_log(package: Path) -> None:
    """Let the editor log without its native module, which a compiler would have to build."""
    index = package / "index.js"
    if index.exists() and not list(package.glob("build/**/*.node")):
        new = package / "index.js.new"  # running editors may load it meanwhile
        new.write_bytes(files("codehub.adapters.ide").joinpath("spdlog.js").read_bytes())
        new.chmod(0o644)
        new.replace(index)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
