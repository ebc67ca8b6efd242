"""A workspace's network: a namespace with its own loopback and outbound access through slirp4netns.

The supervisor uses it between fork and exec, so it imports only the standard library. Forbidden destinations are
unreachable routes, set before there is outbound access. The workspace may not change routes.

A socket that names its interface ignores routes, which is enough to send multicasts to this machine and its network. The
interface therefore sends only to slirp4netns' own addresses.
"""

from __future__ import annotations

# The socket module without its Python part, which would take as long to load as everything else here.
import _socket as socket
import ctypes
import fcntl
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
# 198.18.0.0/15 is reserved for benchmarks, so no machine that a workspace may want to reach has such an address.
CIDR, GATEWAY, NAMESERVER = "198.18.0.0/24", "198.18.0.2", "198.18.0.3"
INTERFACE = "tap0"
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_RTM_NEWROUTE, _NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_CREATE, _NLMSG_ERROR = 24, 1, 4, 0x400, 2
_RT_TABLE_MAIN, _RTPROT_STATIC, _RTN_PROHIBIT, _RTA_DST = 254, 4, 8, 1
_TUNSETIFF, _TUNSETPERSIST, _TUNSETTXFILTER, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x400454CB, 0x400454D1, 2, 0x1000
_BROADCAST = b"\xff" * 6  # for requests of ARP
_libc = ctypes.CDLL(None, use_errno=True)


def enter(blocked: Sequence[str], *, new_user: bool) -> None:
    """Move this process into a new network namespace and, with `new_user` (if not root), into a new user namespace."""
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(CLONE_NEWNET | (CLONE_NEWUSER if new_user else 0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace can be made: {os.strerror(number)}")
    if new_user:
        for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(content)
    _bring_up_loopback()
    _refuse_routes(blocked)


def _bring_up_loopback() -> None:
    any_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
    finally:
        any_socket.close()


def _refuse_routes(networks: Sequence[str]) -> None:
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    try:
        for sequence, text in enumerate(networks):
            address, _, length = text.partition("/")
            body = struct.pack(
                "=BBBBBBBBI",
                socket.AF_INET,
                int(length),
                0,
                0,
                _RT_TABLE_MAIN,
                _RTPROT_STATIC,
                0,
                _RTN_PROHIBIT,
                0,
            )
            body += struct.pack("=HH4s", 8, _RTA_DST, socket.inet_aton(address))
            flags = _NLM_F_REQUEST | _NLM_F_ACK | _NLM_F_CREATE
            netlink.send(struct.pack("=IHHII", 16 + len(body), _RTM_NEWROUTE, flags, sequence, 0) + body)
            answer = netlink.recv(4096)
            (kind,) = struct.unpack_from("=H", answer, 4)
            (code,) = struct.unpack_from("=i", answer, 16)
            if kind != _NLMSG_ERROR or code != 0:
                raise OSError(-code, f"no route that refuses {text}: {os.strerror(-code)}")
    finally:
        netlink.close()


def make_interface() -> None:
    """Create the interface that slirp4netns will serve, without one of an earlier slirp4netns and its configuration.

    The filter belongs to the interface, so it applies before and after slirp4netns has opened it.
    """
    for filtered in (False, True):
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            name = INTERFACE.encode()
            fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name, _IFF_TAP | _IFF_NO_PI))
            if filtered:
                allowed = (_BROADCAST, _ethernet(GATEWAY), _ethernet(NAMESERVER))
                fcntl.ioctl(tap, _TUNSETTXFILTER, struct.pack("=HH", 0, len(allowed)) + b"".join(allowed))
            fcntl.ioctl(tap, _TUNSETPERSIST, int(filtered))
        finally:
            os.close(tap)


def _ethernet(address: str) -> bytes:
    """Return the Ethernet address that slirp4netns gives to an address of its own."""
    return b"\x52\x55" + socket.inet_aton(address)


def hide_mounts() -> None:
    """Enter a private mount namespace, whose changes are invisible to other processes.

    slirp4netns unmounts everything that it does not need. It makes only `/` itself private: if the machine's mounts are
    shared, as with systemd, that would unmount `/sys/fs/cgroup` and everything else for all processes.
    """
    if _libc.unshare(CLONE_NEWNS) != 0 or _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no mount namespace can be made: {os.strerror(number)}")


def way_out(program: str, network: int, user: int | None, until: int) -> list[str]:
    """Return slirp4netns' command for the open namespaces `network` and `user`.

    It ends when the other end of `until` closes.
    """
    words = [
        program,
        "--configure",
        "--mtu=65520",
        f"--cidr={CIDR}",
        "--disable-host-loopback",
        "--enable-sandbox",
        "--enable-seccomp",
        f"--exit-fd={until}",
        "--netns-type=path",
    ]
    if user is not None:
        words.append(f"--userns-path=/proc/self/fd/{user}")
    return [*words, f"/proc/self/fd/{network}", INTERFACE]
