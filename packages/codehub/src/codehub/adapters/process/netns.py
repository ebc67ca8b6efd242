"""A workspace's own network: a namespace with a loopback of its own and a way out through slirp4netns.

Used by the supervisor between fork and exec, so it needs the standard library alone. What must not be reached is a route
that refuses, set before there is a way out: the workspace has no right to change routes, so there is no moment without.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
# 198.18.0.0/15 is set apart for laboratories, so no machine that a workspace may want has such an address.
CIDR, NAMESERVER = "198.18.0.0/24", "198.18.0.3"
_PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15")
# "This network", link-local (cloud metadata), multicast, reserved.
_NEVER = ("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_RTM_NEWROUTE, _NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_CREATE, _NLMSG_ERROR = 24, 1, 4, 0x400, 2
_RT_TABLE_MAIN, _RTPROT_STATIC, _RTN_PROHIBIT, _RTA_DST = 254, 4, 8, 1
_libc = ctypes.CDLL(None, use_errno=True)


def blocked_networks(own_addresses: Iterable[str], allowed: Sequence[str]) -> list[str]:
    """What a workspace may not reach: the machine's own addresses, link-local, and private networks except `allowed`."""
    private = [IPv4Network(text) for text in _PRIVATE]
    for text in allowed:
        opened = IPv4Network(text)
        private = [left for network in private for left in _without(network, opened)]
    machine = [IPv4Network(address) for address in own_addresses]
    return [str(network) for network in (*map(IPv4Network, _NEVER), *private, *machine)]


def _without(network: IPv4Network, opened: IPv4Network) -> list[IPv4Network]:
    if network.subnet_of(opened):
        return []
    return list(network.address_exclude(opened)) if opened.subnet_of(network) else [network]


def enter(blocked: Sequence[str], *, new_user: bool) -> None:
    """Move this process into a new network namespace; `new_user`, for those who are not root: and a user namespace."""
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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _refuse_routes(networks: Sequence[str]) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        for sequence, text in enumerate(networks):
            network = IPv4Network(text)
            body = struct.pack(
                "=BBBBBBBBI",
                socket.AF_INET,
                network.prefixlen,
                0,
                0,
                _RT_TABLE_MAIN,
                _RTPROT_STATIC,
                0,
                _RTN_PROHIBIT,
                0,
            )
            body += struct.pack("=HH4s", 8, _RTA_DST, network.network_address.packed)
            flags = _NLM_F_REQUEST | _NLM_F_ACK | _NLM_F_CREATE
            netlink.send(struct.pack("=IHHII", 16 + len(body), _RTM_NEWROUTE, flags, sequence, 0) + body)
            answer = netlink.recv(4096)
            (kind,) = struct.unpack_from("=H", answer, 4)
            (code,) = struct.unpack_from("=i", answer, 16)
            if kind != _NLMSG_ERROR or code != 0:
                raise OSError(-code, f"no route that refuses {network}: {os.strerror(-code)}")


def way_out(program: str, network: int, user: int | None, until: int) -> list[str]:
    """slirp4netns for the namespaces open as `network` and `user`; it ends when the pipe's other end of `until` closes."""
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
    return [*words, f"/proc/self/fd/{network}", "tap0"]
