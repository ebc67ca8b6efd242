"""System calls that no workspace needs and that were used to attack kernels.

Pure data. `process/seccomp.py` and `docker/seccomp_profile.py` turn it into filters.
"""

from __future__ import annotations

from collections.abc import Mapping

# name: (x86_64, aarch64); None if the architecture has no such call.
DENIED: Mapping[str, tuple[int | None, int | None]] = {
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
NAMESPACES: Mapping[str, tuple[int | None, int | None]] = {
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
# The families of sockets that a workspace may use: Unix, IPv4, IPv6, netlink, packet. Others are reported as not supported.
# Network namespaces do not separate all of them: AF_VSOCK leads to the hypervisor and to listeners of this machine. Most
# are rarely used code of the kernel, which the first such socket loads. `socketpair` first creates two, of any family.
SOCKETS: Mapping[str, tuple[int, int]] = {"socket": (41, 198), "socketpair": (53, 199)}
ALLOWED_FAMILIES = (1, 2, 10, 16, 17)
UNSHARE, CLONE, CLONE3 = (272, 97), (56, 220), (435, 435)
# Reported as absent: libraries then use the older call, which a filter can check.
ABSENT: Mapping[str, tuple[int, int]] = {
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
}
