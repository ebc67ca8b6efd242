"""Clones a repository into the home, as a separate program, so that a clone survives a crash of `workspaced`.

Usage: `python -I -S clone.py`, with the task as JSON on standard input. The clone is created beside its final place and
renamed when it is complete: a partial clone is never mistaken for a complete one, and no file of the user is replaced. It
is safe to repeat at any point. The result is written to `result`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

if not __package__:
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
    __import__(__package__)

from .git_errors import Trouble, explain, explain_submodule, last_progress

_ANSWER_TIMEOUT_S = 45.0
_MARK = "codehub-clone"  # in .git: identifies our clone
_EARLY_BYTES = 20 << 20  # enough data to estimate the total
_KEPT_OUTPUT = 256 << 10
_FULL_BYTES = 256 << 10  # with less room than this, a clone that failed has filled the disk
NO_SPACE = errno.ENOSPC  # the exit code if there was no room to say how it ended
INCOMPLETE = "incomplete"  # of a clone that is there, but without all of its files
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class Failed(Exception):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def git_environment() -> dict[str, str]:
    """Return an environment in which git never prompts and prints English.

    It also disables protocols that run programs or read files.
    """
    ssh = (
        "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ConnectTimeout=30 "
        "-o ServerAliveInterval=30 -o ServerAliveCountMax=4"
    )
    return {
        **os.environ,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh",
        "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", ssh),
        "GIT_LFS_SKIP_SMUDGE": "1",
        # Nothing at all for two minutes. While a server counts and compresses a large repository, it sends only a few
        # bytes now and then: a higher limit would end such clones.
        "GIT_HTTP_LOW_SPEED_LIMIT": "1",
        "GIT_HTTP_LOW_SPEED_TIME": "120",
    }


class Clone:
    def __init__(self, spec: dict[str, str]) -> None:
        self.url, self.id = spec["url"], spec["id"]
        self.ref = "" if spec["ref"] == "HEAD" else spec["ref"]
        self.target = os.path.join(spec["home"], spec["name"])
        self.staging = spec["staging"]
        self.path = spec.get("path", "")
        self.full_ref = ""  # `ref` as the server names it; empty for a commit or the default branch
        self.partial_bytes = int(spec["partial_bytes"])
        self.env = git_environment()
        self.notes: list[str] = []
        self.missing: list[str] = []  # what was not fetched; the owner may try again

    def run(self) -> None:
        if shutil.which("git") is None:
            raise Failed(Trouble("git", "git is not installed in this workspace: add it to its image."))
        if self._is_there():
            self._fetch_the_rest(self.target)
            return
        if os.path.lexists(self.target) and not _is_empty_folder(self.target):
            raise Failed(
                Trouble("exists", f"{self.target} is there already and is not empty. Rename it, then try again.")
            )
        shutil.rmtree(self.staging, ignore_errors=True)
        os.makedirs(os.path.dirname(self.staging), exist_ok=True)
        try:
            self._stage()
        except BaseException:
            # The user does not see it, and on a full disk it is what fills it.
            shutil.rmtree(self.staging, ignore_errors=True)
            raise

    def _stage(self) -> None:
        filters = self._inspect()
        self._clone(filters)
        if self._check_out():
            self._fetch_the_rest(self.staging)
        with open(os.path.join(self.staging, ".git", _MARK), "w") as file:
            file.write(self.id)
        try:
            os.rename(self.staging, self.target)
        except OSError as error:
            raise Failed(
                Trouble("exists", f"The clone could not be moved to {self.target}: {error.strerror}.")
            ) from error

    def _is_there(self) -> bool:
        try:
            with open(os.path.join(self.target, ".git", _MARK)) as file:
                return file.read() == self.id
        except OSError:
            return False

    def _inspect(self) -> bool:
        """Return whether the server can omit old files. Also detects problems before anything is downloaded."""
        trace = self.staging + ".trace"
        env = {**self.env, "GIT_TRACE_PACKET": trace}
        try:
            code, output = self._git(
                ["-c", "protocol.version=2", "ls-remote", "--", self.url, *self._possible_refs()],
                env=env,
                timeout_s=_ANSWER_TIMEOUT_S,
            )
            with contextlib.suppress(OSError):
                with open(trace, errors="replace") as file:
                    capabilities = file.read(_KEPT_OUTPUT)
                return self._judge(code, output, "filter" in _fetch_capability(capabilities))
        finally:
            with contextlib.suppress(OSError):
                os.unlink(trace)
        return self._judge(code, output, False)

    def _judge(self, code: int, output: str, filters: bool) -> bool:
        if code != 0:
            raise Failed(explain(output, self.url, self.ref))
        found = re.findall(r"^[0-9a-f]{40,64}\t(\S+)$", output, re.MULTILINE)
        self.full_ref = next((name for name in self._possible_refs() if self.ref and name in found), "")
        if self.ref and not self.full_ref and not _COMMIT.fullmatch(self.ref):
            raise Failed(explain("Remote branch x not found", self.url, self.ref))
        return filters

    def _possible_refs(self) -> list[str]:
        """Return the names to look for, the preferred one first. Hosts keep pull requests in `refs/pull/1/head`."""
        if not self.ref:
            return ["HEAD"]
        if self.ref.startswith("refs/"):
            return [self.ref]
        return [f"refs/heads/{self.ref}", f"refs/tags/{self.ref}", f"refs/{self.ref}"]

    def _clone(self, filters: bool) -> None:
        """Clone everything, unless the repository is large and the server can send the history without its files."""
        words = ["clone", "--progress", "--no-checkout", "--", self.url, self.staging]
        if filters:
            code, output = self._git(words, watch=self._is_large)
            if code != _TOO_LARGE:
                self._must(code, output)
                return
            shutil.rmtree(self.staging, ignore_errors=True)
            self.notes.append("Partial clone: older versions of files are downloaded when they are needed.")
            print("This repository is large: cloning without the contents of old versions.", flush=True)
            words.insert(1, "--filter=blob:none")
        code, output = self._git(words)
        self._must(code, output)

    def _is_large(self, output: str) -> bool:
        progress = last_progress(output)
        if progress is None or progress.step != "Receiving objects" or progress.percent >= 80:
            return False
        estimate = progress.received * 100 // max(1, progress.percent)
        early = progress.received > _EARLY_BYTES and estimate > 2 * self.partial_bytes
        return early or progress.received > self.partial_bytes

    def _check_out(self) -> bool:
        """Return whether there is anything to check out."""
        if not self.ref and not self._has_head() and not self._choose_branch():
            self.notes.append("The repository is empty.")
            return False
        self._must(*self._git(["-C", self.staging, "checkout", "--progress", *self._wanted()]))
        if self.path and not os.path.isdir(os.path.join(self.staging, self.path)):
            self.notes.append(f"The repository has no folder “{self.path}”: the IDE opens the repository itself.")
        return True

    def _has_head(self) -> bool:
        return self._git(["-C", self.staging, "rev-parse", "--verify", "--quiet", "HEAD"])[0] == 0

    def _choose_branch(self) -> bool:
        """Take another branch if the server's default branch does not exist. Return whether there is any."""
        words = ["for-each-ref", "--format=%(refname)", "refs/remotes/origin"]
        _, output = self._git(["-C", self.staging, *words])
        names = [line.removeprefix("refs/remotes/origin/") for line in output.splitlines()]
        if not names:
            return False
        self.ref = next((name for name in ("main", "master") if name in names), names[0])
        self.full_ref = f"refs/heads/{self.ref}"
        self.notes.append(f"The repository's default branch does not exist: “{self.ref}” is checked out.")
        return True

    def _wanted(self) -> list[str]:
        """Return what to check out, and fetch it if a clone does not contain it."""
        if not self.ref:
            return []
        branch = self.full_ref.removeprefix("refs/heads/")
        if branch != self.full_ref:
            return ["-B", branch, "--track", f"origin/{branch}"]
        if self.full_ref.startswith("refs/tags/"):
            return ["--detach", self.full_ref]
        inside = ["-C", self.staging]
        if not self.full_ref and self._git([*inside, "cat-file", "-e", self.ref + "^{commit}"])[0] == 0:
            return ["--detach", self.ref]
        self._must(*self._git([*inside, "fetch", "--progress", "origin", self.full_ref or self.ref]))
        return ["--detach", "FETCH_HEAD"]

    def _fetch_the_rest(self, folder: str) -> None:
        """Fetch submodules and large files. Without them the clone is usable, and this is tried again on request."""
        if os.path.exists(os.path.join(folder, ".gitmodules")):
            words = ["submodule", "update", "--init", "--recursive", "--progress"]
            code, output = self._git(["-C", folder, *words])
            if code != 0:
                self.missing.append(explain_submodule(output, self.url))
            # Those that were not fetched are left out, with their own submodules.
            _, output = self._git(["-C", folder, "submodule", "--quiet", "foreach", "--recursive", "pwd"])
            for submodule in output.splitlines():
                _, url = self._git(["-C", submodule, "config", "--get", "remote.origin.url"])
                self._fetch_large_files(submodule, url.strip())
        self._fetch_large_files(folder, self.url)

    def _fetch_large_files(self, folder: str, url: str) -> None:
        code, _ = self._git(["-C", folder, "grep", "-l", "filter=lfs", "HEAD", "--", "*.gitattributes"])
        if code != 0:
            return
        if shutil.which("git-lfs") is None:
            text = "Git LFS is not installed here: the repository's large files are pointers only."
            self.missing += [text] if text not in self.missing else []
            return
        self._git(["-C", folder, "lfs", "install", "--local", "--skip-smudge"])
        code, output = self._git(["-C", folder, "lfs", "pull"])
        self._git(["-C", folder, "lfs", "install", "--local", "--force"])
        if code != 0:
            trouble = explain(output, url, self.ref)
            self.missing.append(f"Large files (Git LFS) were not fetched. {trouble.message}")

    def _must(self, code: int, output: str) -> None:
        if code == -signal.SIGKILL:
            output += "\nout of memory"  # the usual reason; what was killed says nothing
        if code != 0 and _is_full(os.path.dirname(self.staging)):
            output += "\nNo space left on device"  # not all of git's programs say so
        if code != 0:
            raise Failed(explain(output, self.url, self.ref))

    def _git(
        self,
        words: list[str],
        *,
        env: dict[str, str] | None = None,
        timeout_s: float = 0.0,
        watch: object = None,
    ) -> tuple[int, str]:
        """Run git and return its exit code and output. All output is printed. `watch` may end it by returning True."""
        child = subprocess.Popen(
            ["git", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env or self.env,
            start_new_session=True,
        )
        output = b""
        quiet = words[0] in ("-C",) and words[2] in ("rev-parse", "cat-file", "for-each-ref", "grep", "config")
        alarm = time.monotonic() + timeout_s if timeout_s else 0.0
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        try:
            while True:
                data = _read(child.stdout.fileno())
                if data == b"":
                    break
                if data:
                    output = (output + data)[-_KEPT_OUTPUT:]
                    if not quiet:
                        sys.stdout.buffer.write(data)
                        sys.stdout.flush()
                    if callable(watch) and watch(output[-4096:].decode(errors="replace")):
                        _end(child)
                        return _TOO_LARGE, ""
                if alarm and time.monotonic() > alarm:
                    _end(child)
                    return 128, "Connection timed out"
            return child.wait(), output.decode(errors="replace")
        except SystemExit:  # stopped: git has a session of its own, and would go on
            _end(child)
            raise


_TOO_LARGE = -1000


def _read(fd: int) -> bytes | None:
    """Return some bytes, b"" at the end, or None if none arrive for a while."""
    import select

    ready, _, _ = select.select([fd], [], [], 0.5)
    return os.read(fd, 65536) if ready else None


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _is_empty_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)


def _is_full(path: str) -> bool:
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _FULL_BYTES


def _fetch_capability(trace: str) -> str:
    found = re.search(r"< fetch=([^\n]*)", trace)
    return found[1] if found else ""


def write_result(spec: dict[str, str], result: dict[str, object]) -> int:
    """Write what `workspaced` reads, and return the exit code. Without room for that, the code says so."""
    temporary = spec["result"] + ".new"
    try:
        with open(temporary, "w") as file:
            json.dump(result, file)
        os.rename(temporary, spec["result"])
    except OSError as error:
        print(error, flush=True)
        return NO_SPACE if error.errno in (errno.ENOSPC, errno.EDQUOT) else 1
    return 0 if result["state"] == "done" else 1


def clean_up_when_stopped() -> None:
    """Make TERM an exception, so that git ends too and no part of a clone stays."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def main() -> int:
    spec = json.load(sys.stdin)
    clean_up_when_stopped()
    clone = Clone(spec)
    result: dict[str, object] = {"state": "done", "id": spec["id"]}
    try:
        clone.run()
    except Failed as error:
        result = {"state": "failed", "kind": error.trouble.kind, "message": error.trouble.message, "id": spec["id"]}
    except OSError as error:
        trouble = explain(str(error), spec["url"], spec["ref"])
        result = {"state": "failed", "kind": trouble.kind, "message": trouble.message, "id": spec["id"]}
        print(error, flush=True)
    result["notes"] = [*clone.missing, *clone.notes]
    if clone.missing and result["state"] == "done":
        result["kind"] = INCOMPLETE
    return write_result(spec, result)


if __name__ == "__main__":
    sys.exit(main())
