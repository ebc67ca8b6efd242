"""System calls that no workspace needs and that were used to attack kernels, as a BPF program for `bwrap --seccomp`.

A deny-list like those of container engines: everything else works. Pure: syscall numbers in, bytes out.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping

CLONE_NEWUSER = 0x10000000
AF_ALG, AF_VSOCK = 38, 40
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; little-endian, so the argument's low half
_X32 = 0x40000000  # x86-64's alternative numbering of the same calls
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# name: (x86_64, aarch64); None if the architecture has no such call.
_DENIED: Mapping[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "modify_ldt": (154, None),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "vhangup": (153, 58),
}
# Calls that create namespaces: denied unless user namespaces are allowed.
_NAMESPACES: Mapping[str, tuple[int | None, int | None]] = {
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "pivot_root": (155, 41),
    "setns": (308, 268),
    "umount2": (166, 39),
}
# Families of sockets, reported as not supported. AF_VSOCK leads to the hypervisor and to listeners of this machine from
# every network namespace; AF_ALG is the kernel's cryptography.
_SOCKET = (41, 198)
_FAMILIES = (AF_ALG, AF_VSOCK)
_UNSHARE, _CLONE, _CLONE3 = (272, 97), (56, 220), (435, 435)
# Reported as absent: libraries then use the older call, which a filter can check.
_ABSENT: Mapping[str, tuple[int, int]] = {
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
}


def seccomp_program(machine: str, *, user_namespaces: bool = False) -> bytes | None:
    """Return the filter for `os.uname().machine`, or None for an architecture with unknown numbers."""
    if machine not in _AUDIT_ARCH:
        return None
    column = 0 if machine == "x86_64" else 1
    code = [
        _step(_LD, _ARCH),
        _step(_JEQ, _AUDIT_ARCH[machine], yes=1, no=0),
        _refuse(errno.ENOSYS),  # 32-bit calls have different numbers, which would bypass the list
        _step(_LD, _NR),
    ]
    if machine == "x86_64":
        code += [_step(_JGE, _X32, yes=0, no=1), _refuse(errno.ENOSYS)]
    for numbers in _ABSENT.values():
        code += _on(numbers[column], _refuse(errno.ENOSYS))
    denied = _DENIED if user_namespaces else {**_DENIED, **_NAMESPACES}
    for entry in denied.values():
        if (number := entry[column]) is not None:
            code += _on(number, _refuse(errno.EPERM))
    code += [_step(_JEQ, _SOCKET[column], yes=0, no=2 + 2 * len(_FAMILIES)), _step(_LD, _FIRST_ARGUMENT)]
    for family in _FAMILIES:
        code += _on(family, _refuse(errno.EAFNOSUPPORT))
    code.append(_step(_RET, _ALLOW))
    if not user_namespaces:
        # clone3 takes its flags in memory, which no filter can inspect.
        code += _on(_CLONE3[column], _refuse(errno.ENOSYS))
        for pair in (_UNSHARE, _CLONE):
            code += [
                _step(_JEQ, pair[column], yes=0, no=4),
                _step(_LD, _FIRST_ARGUMENT),
                _step(_JSET, CLONE_NEWUSER, yes=0, no=1),
                _refuse(errno.EPERM),
                _step(_RET, _ALLOW),
            ]
    return b"".join([*code, _step(_RET, _ALLOW)])


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return one struct sock_filter."""
    return struct.pack("=HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _step(_RET, _ERRNO | number)


def _on(number: int, action: bytes) -> list[bytes]:
    return [_step(_JEQ, number, yes=0, no=1), action]
