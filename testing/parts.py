"""Detects which real parts exist, and skips tests that need a missing one.

A test declares the parts that it needs: `@pytest.mark.needs("docker", "chromium")`. On a contributor's machine, a test
whose part is missing is skipped, and the end of the output lists which and why. Under CI=true that is a failure: nothing
may be skipped.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter

import pytest

# part → (the required program, where else to find it, how to get it)
_PROGRAMS: dict[str, tuple[str, str]] = {
    "docker": ("dockerd", "Debian's docker.io"),
    "docker-registry": ("docker-registry", "Debian's docker-registry"),
    "uml": ("linux.uml", "Debian's user-mode-linux"),
    "mkfs.xfs": ("mkfs.xfs", "Debian's xfsprogs"),
    "mkfs.ext4": ("mkfs.ext4", "Debian's e2fsprogs"),
    "insmod": ("insmod", "Debian's kmod"),
    "chromium": ("chromium", "Debian's chromium"),
    "debootstrap": ("debootstrap", "Debian's debootstrap"),
    "bwrap": ("bwrap", "Debian's bubblewrap"),
    "sshd": ("sshd", "Debian's openssh-server"),
    "rsync": ("rsync", "Debian's rsync"),
    "vim": ("vim", "Debian's vim"),
    "htop": ("htop", "Debian's htop"),
    "slirp4netns": ("slirp4netns", "Debian's slirp4netns"),
    "nginx": ("nginx", "Debian's nginx-light"),
    "zstd": ("zstd", "Debian's zstd"),
    "xattr": ("setfattr", "Debian's attr"),
    "git": ("git", "Debian's git"),
    "npm": ("npm", "Node.js 20 or later with npm"),
    "wrk": ("wrk", "Debian's wrk"),
    "g++": ("g++", "Debian's g++"),
    "openssl": ("openssl", "Debian's openssl"),
    "fcgiwrap": ("fcgiwrap", "Debian's fcgiwrap"),
    "git-lfs": ("git-lfs", "Debian's git-lfs"),
    "ip": ("ip", "Debian's iproute2"),
    "gopls": ("gopls", "Debian's gopls and golang-go"),
    "ctags": ("ctags", "Debian's universal-ctags"),
    "clangd": ("clangd", "Debian's clangd"),
    "systemd": ("systemd-analyze", "Debian's systemd"),
}
_SYSTEM_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_IN_CI = os.environ.get("CI", "").lower() == "true"

_left_out: Counter[str] = Counter()


def lacking(part: str) -> str | None:
    """Return why a part cannot be used here, or None if it can."""
    if part == "kubernetes":
        return None if os.environ.get("CODEHUB_TEST_KUBERNETES") else "run make test-kubernetes"
    if part == "root":
        return None if os.geteuid() == 0 else "run as root"
    program, source = _PROGRAMS[part]
    return None if shutil.which(program, path=_SYSTEM_PATH) else f"install {source}"


def pytest_configure(config: pytest.Config) -> None:
    if _IN_CI and config.option.dist == "loadgroup" and config.pluginmanager.hasplugin("xdist"):
        major, minor = (int(n) for n in pytest.__version__.split(".")[:2])
        if (major, minor) >= (9, 1):
            raise pytest.UsageError("pytest 9.1 and later ignore xdist groups: tests that must run in turn would not")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    soak = os.environ.get("CODEHUB_TEST_SOAK") == "1"
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("soak") and not soak:
            dropped.append(item)
            continue
        # A separate run, in the node's namespaces: tests that `make test` does not run are not missing there.
        if lacking("kubernetes") and any("kubernetes" in marker.args for marker in item.iter_markers("needs")):
            dropped.append(item)
            continue
        reasons = {
            f"{part}: {why}"
            for marker in item.iter_markers("needs")
            for part in marker.args
            if (why := lacking(part)) is not None
        }
        if not reasons:
            kept.append(item)
        elif _IN_CI:
            item.add_marker(pytest.mark.usefixtures("a_part_is_missing"))
            kept.append(item)
        else:
            dropped.append(item)
            _left_out.update(reasons)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture
def a_part_is_missing(request: pytest.FixtureRequest) -> None:
    parts = [part for marker in request.node.iter_markers("needs") for part in marker.args if lacking(part)]
    pytest.fail(f"CI may leave nothing out, and these are missing: {', '.join(parts)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        terminalreporter.section("left out")
        for reason, count in sorted(_left_out.items()):
            terminalreporter.write_line(f"{count} tests need {reason}")
