"""The packet filter rules of the containers' networks: which there must be, and which are left over.

An installation has one chain for what its containers forward, and a rule in each direction between its bridge and this
machine. A network that was removed leaves them behind, so each CodeHub removes the rules of all bridges that are gone.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
from collections.abc import Collection, Sequence

from codehub.domain.errors import Transient
from codehub.domain.networks import LINK_LOCAL, blocked_networks

_FORWARDED = "DOCKER-USER"  # the engine's chain for user-defined rules, which it does not modify
_FAILED = "the packet filter that keeps workspaces from this machine's services could not be set"
_NEW = ("-m", "conntrack", "--ctstate", "NEW", "-j", "DROP")
# Digits of an installation's digest in the names. Interface names have at most 15 characters.
_CHAIN_DIGITS, _BRIDGE_DIGITS = 12, 11
_CHAIN = re.compile(r"-N CODEHUB-([0-9a-f]{12})")
_BRIDGE = re.compile(r" ch-([0-9a-f]{11})(?= |$)")


class PacketFilter:
    """The rules of one installation. `digest` is that of its id."""

    def __init__(self, digest: str, allowed: Sequence[str]) -> None:
        self.bridge = f"ch-{digest[:_BRIDGE_DIGITS]}"
        self.chain = f"CODEHUB-{digest[:_CHAIN_DIGITS]}"
        self._allowed = tuple(allowed)

    @property
    def _jumps(self) -> list[tuple[str, ...]]:
        """The rules outside of the chain, one of which jumps to it."""
        return [
            ("INPUT", "-i", self.bridge, *_NEW),
            # Users of this machine cannot reach listeners in a container either: CodeHub connects through its sockets.
            ("OUTPUT", "-o", self.bridge, *_NEW),
            (_FORWARDED, "-i", self.bridge, "-j", self.chain),
        ]

    @property
    def _drops(self) -> list[tuple[str, ...]]:
        return [(self.chain, "-d", network, *_NEW) for network in blocked_networks((), self._allowed)]

    async def is_set(self) -> bool:
        """Return whether all rules are there: another program may have flushed them."""
        lines = set((await _listing()).splitlines())
        return all(" ".join(("-A", *rule)) in lines for rule in (*self._jumps, *self._drops))

    async def set(self) -> None:
        """Set the rules, and remove those of bridges that are gone. Raises Transient if that fails."""
        await _run("-N", self.chain)  # fails if the chain exists
        if await _run("-F", self.chain) != 0:
            raise Transient(_FAILED)
        for rule in self._drops:
            if await _run("-A", *rule) != 0:
                raise Transient(_FAILED)
        for jump in self._jumps:
            if await _run("-C", *jump) != 0 and await _run("-I", *jump) != 0:
                raise Transient(_FAILED)
        await remove_stale()

    async def remove(self) -> None:
        for jump in self._jumps:
            await _run("-D", *jump)
        await _run("-F", self.chain)
        await _run("-X", self.chain)

    async def dropped_metadata(self) -> int:
        """Return how many packets to link-local addresses the chain has dropped."""
        _, listing = await _output("-nvxL", self.chain)
        for line in listing.splitlines():
            words = line.split()
            if LINK_LOCAL in words and "DROP" in words:
                return int(words[0])
        return 0


async def remove_stale() -> None:
    """Remove the rules of bridges that are gone, of any installation. They have no effect, but they accumulate."""
    listing = await _listing()
    for command in stale_rules(listing, {name for _, name in socket.if_nameindex()}):
        await _run(*command)  # fails if another process was quicker


def stale_rules(listing: str, interfaces: Collection[str]) -> list[list[str]]:
    """Return the commands that remove the rules of CodeHub's bridges that are not among the interfaces. Pure.

    A network exists before its rules, so a rule without its bridge is never one of a network that is being created.
    """
    alive = {name.removeprefix("ch-") for name in interfaces if name.startswith("ch-")}
    rules, chains = [], []
    for line in listing.splitlines():
        if chain := _CHAIN.fullmatch(line):
            if chain[1][:_BRIDGE_DIGITS] not in alive:
                chains.append(f"CODEHUB-{chain[1]}")
        elif line.startswith("-A ") and (named := set(_BRIDGE.findall(line))) and not named & alive:
            rules.append(["-D", *line.split()[1:]])
    # The rules first: a chain that a rule jumps to cannot be removed.
    return [*rules, *([option, chain] for chain in chains for option in ("-F", "-X"))]


def find_iptables() -> str | None:
    return shutil.which("iptables", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


async def _listing() -> str:
    code, listing = await _output("-S")
    if code != 0:
        raise Transient(_FAILED)
    return listing


async def _run(*words: str) -> int:
    return (await _output(*words))[0]


async def _output(*words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        find_iptables() or "iptables",
        "-w",
        "10",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode(errors="replace")
