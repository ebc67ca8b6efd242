"""Lists the listening ports of this workspace from /proc/net/tcp and tcp6, with the process's name if known.

Imports little: the first page of some IDEs waits for the bridge, which uses it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LISTEN = "0A"
_SOCKET = "socket:["  # followed by the inode and a bracket


class Listener:
    __slots__ = ("address", "inode", "port", "uid")

    def __init__(self, port: int, address: str, uid: int, inode: int) -> None:
        self.port = port
        self.address = address  # "0.0.0.0", "127.0.0.1", "::", "::1", …
        self.uid = uid
        self.inode = inode


def parse(table: str, family: int) -> list[Listener]:
    """Return the listeners in a /proc/net table. `family` is 4 or 6."""
    found: list[Listener] = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        address, _, port = fields[1].rpartition(":")
        try:
            found.append(Listener(int(port, 16), _address(address, family), int(fields[7]), int(fields[9])))
        except ValueError:
            continue
    return found


def _address(digits: str, family: int) -> str:
    """Parse an address. The kernel prints 32-bit words in the machine's byte order."""
    import socket
    import sys

    words = [bytes.fromhex(digits[at : at + 8]) for at in range(0, len(digits), 8)]
    raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return socket.inet_ntop(socket.AF_INET if family == 4 else socket.AF_INET6, raw)


def listeners(uid: int, hidden: Iterable[int] = ()) -> list[dict[str, object]]:
    """Return the ports on which processes of this user listen, without duplicates and without CodeHub's own."""
    found: dict[int, Listener] = {}
    for name, family in (("/proc/net/tcp", 4), ("/proc/net/tcp6", 6)):
        try:
            with open(name) as file:
                table = file.read()
        except OSError:
            continue
        for listener in parse(table, family):
            if listener.uid == uid and listener.port not in hidden:
                found.setdefault(listener.port, listener)
    names = _owners({listener.inode for listener in found.values()})
    return [
        {"port": port, "address": found[port].address, "process": names.get(found[port].inode)}
        for port in sorted(found)
    ]


def addresses(port: int) -> list[str]:
    """Return where to reach a port: the loopback addresses of the families with a listener."""
    wanted: list[str] = []
    for name, family, loopback, anywhere in (
        ("/proc/net/tcp", 4, "127.0.0.1", "0.0.0.0"),
        ("/proc/net/tcp6", 6, "::1", "::"),
    ):
        try:
            with open(name) as file:
                table = file.read()
        except OSError:
            continue
        for listener in parse(table, family):
            if listener.port == port:
                wanted.append(loopback if listener.address in (loopback, anywhere) else listener.address)
    return list(dict.fromkeys(wanted))


def _owners(inodes: set[int]) -> dict[int, str | None]:
    owners: dict[int, str | None] = {}
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or len(owners) == len(inodes):
            continue
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                inode = int(target[len(_SOCKET) : -1]) if target.startswith(_SOCKET) else -1
                if inode in inodes:
                    with open(f"/proc/{pid}/comm") as file:
                        owners[inode] = file.read().strip()
        except OSError:
            continue
    return owners
