"""The system call filter of containers, as the engine takes it. It replaces the engine's own, which differs by version.

An allow-list, like the engine's: calls that this module does not know are refused. What the filter of processes refuses
(`denied_calls.py`) is refused here too, and what an engine refuses to a container without capabilities. Pure.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from typing import Final

from codehub.adapters.denied_calls import ABSENT, ALLOWED_FAMILIES, DENIED, NAMESPACES, SOCKETS

# Whose calls are known. On others, the engine's own filter applies.
MACHINES: Final = frozenset({"x86_64", "aarch64"})
# The families of sockets that Linux has had so far. They are compared as exact numbers: the kernel ignores the upper half
# of the argument, so that a number above 32 bits could mean a refused family.
_FAMILIES: Final = range(46)
_NEW_NAMESPACES: Final = 0x7E020000  # the flags of clone that create namespaces
# Linux, 32-bit addresses, UNAME26 and a query. Others turn off protections of the address space.
_PERSONALITIES: Final = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
# They read and write other processes. Before this kernel, ptrace could bypass a filter.
_DEBUGGING: Final = ("process_vm_readv", "process_vm_writev", "ptrace")
_SAFE_TO_DEBUG: Final = "4.8"
# The calls of Linux up to 6.1 and the later ones that libraries use, without obsolete ones.
_KNOWN: Final = """
    accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_adjtime
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit
    exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchownat
    fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
    futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents
    getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
    getrandom getresgid getresuid getrlimit getrusage getsockname getsockopt gettid gettimeofday getuid getxattr
    getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents
    io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset
    landlock_restrict_self lchown lgetxattr link linkat listen listxattr listxattrat llistxattr lremovexattr lseek
    lsetxattr lstat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat
    mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap
    mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open
    openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl
    pread64 preadv preadv2 prlimit64 process_mrelease pselect6 pwrite64 pwritev pwritev2 read readahead readlink
    readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2
    restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
    rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
    sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
    sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto
    set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority
    setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shmat shmctl shmdt
    shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync
    sync_file_range sync_file_range2 syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname unlink
    unlinkat uretprobe utime utimensat utimes vfork vmsplice wait4 waitid write writev
"""


def seccomp_option(machine: str) -> list[str]:
    """Return the options of a container for this machine's architecture: none if its calls are unknown."""
    return [f"seccomp={json.dumps(_profile())}"] if machine in MACHINES else []


def _profile() -> dict[str, object]:
    denied = {*DENIED, *NAMESPACES, "unshare"}
    allowed = [name for name in _KNOWN.split() if name not in denied and name not in ABSENT]
    # No 32-bit architecture: its calls have other numbers, and some pass their arguments in memory, unseen by a filter.
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,  # libraries then use an older call
        "syscalls": [
            _allow(allowed),
            _refuse(sorted(denied), errno.EPERM),
            _refuse([*ABSENT, "clone3"], errno.ENOSYS),  # clone3 takes its flags in memory
            _allow(_DEBUGGING) | {"includes": {"minKernel": _SAFE_TO_DEBUG}},
            _allow(["clone"]) | {"args": [{"index": 0, "value": _NEW_NAMESPACES, "op": "SCMP_CMP_MASKED_EQ"}]},
            *(_allow(["personality"]) | _first(value) for value in _PERSONALITIES),
            *(_allow(SOCKETS) | _first(family) for family in ALLOWED_FAMILIES),
            *(
                _refuse(SOCKETS, errno.EAFNOSUPPORT) | _first(family)
                for family in _FAMILIES
                if family not in ALLOWED_FAMILIES
            ),
            _refuse(SOCKETS, errno.EAFNOSUPPORT)
            | {"args": [{"index": 0, "value": _FAMILIES.stop, "op": "SCMP_CMP_GE"}]},
        ],
    }


def _allow(names: Iterable[str]) -> dict[str, object]:
    return {"names": list(names), "action": "SCMP_ACT_ALLOW"}


def _refuse(names: Iterable[str], number: int) -> dict[str, object]:
    return {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": number}


def _first(value: int) -> dict[str, object]:
    """The first argument has exactly this value."""
    return {"args": [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}]}
