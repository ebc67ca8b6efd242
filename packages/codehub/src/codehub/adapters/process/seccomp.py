"""The system calls of `denied_calls.py` as a BPF program for `bwrap --seccomp`.

A deny-list of calls and an allow-list of socket families: everything else works. Pure: syscall numbers in, bytes out.
"""

from __future__ import annotations

import errno
import struct

from codehub.adapters.denied_calls import (
    ABSENT,
    ALLOWED_FAMILIES,
    CLONE,
    CLONE3,
    DENIED,
    NAMESPACES,
    SOCKETS,
    UNSHARE,
)

CLONE_NEWUSER = 0x10000000
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; little-endian, so the argument's low half
_X32 = 0x40000000  # x86-64's alternative numbering of the same calls
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


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
    for numbers in ABSENT.values():
        code += _on(numbers[column], _refuse(errno.ENOSYS))
    denied = DENIED if user_namespaces else {**DENIED, **NAMESPACES}
    for entry in denied.values():
        if (number := entry[column]) is not None:
            code += _on(number, _refuse(errno.EPERM))
    for pair in SOCKETS.values():
        code += [_step(_JEQ, pair[column], yes=0, no=2 + 2 * len(ALLOWED_FAMILIES)), _step(_LD, _FIRST_ARGUMENT)]
        for family in ALLOWED_FAMILIES:
            code += _on(family, _step(_RET, _ALLOW))
        code.append(_refuse(errno.EAFNOSUPPORT))
    if not user_namespaces:
        # clone3 takes its flags in memory, which no filter can inspect.
        code += _on(CLONE3[column], _refuse(errno.ENOSYS))
        for pair in (UNSHARE, CLONE):
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
