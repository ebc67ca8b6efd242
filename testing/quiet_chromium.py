#!/usr/bin/env python3
"""Chromium that does not notice when network interfaces appear or disappear.

By default this is Chromium's headless shell if it is installed: the same engine without the window, menus and built-in
pages of a desktop browser, which take more CPU than most pages. FULL in the arguments asks for the whole browser.

Otherwise a page that loads at such a moment fails with ERR_NETWORK_CHANGED, and other tests start containers and network
namespaces all the time. Chromium learns of interfaces from netlink sockets; without them it assumes that it is online. A
seccomp filter refuses netlink sockets to this process, which then becomes Chromium.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

CHROMIUM = "/usr/bin/chromium"
HEADLESS_SHELL = "/usr/bin/chromium-headless-shell"
FULL = "--codehub-test-full"
_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_AF_NETLINK = 16
# By machine: the architecture's name in seccomp_data, and the number of socket(2).
_SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def refuse_netlink() -> None:
    if os.uname().machine not in _SOCKET:
        return
    architecture, socket = _SOCKET[os.uname().machine]
    # Offsets in seccomp_data: 0 the system call, 4 the architecture, 16 the first argument.
    steps = [
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, 0),
        (_IF_EQUAL, 0, 3, socket),
        (_LOAD, 0, 0, 16),
        (_IF_EQUAL, 0, 1, _AF_NETLINK),
        (_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVS, 1, 0, 0, 0), (_SET_SECCOMP, _MODE_FILTER, filter_, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse_netlink()
    program = CHROMIUM if FULL in sys.argv or not os.path.exists(HEADLESS_SHELL) else HEADLESS_SHELL
    os.execv(program, [program, *(argument for argument in sys.argv[1:] if argument != FULL)])
