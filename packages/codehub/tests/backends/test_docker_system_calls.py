"""The system calls that a container workspace has, tried from inside a container."""

from __future__ import annotations

import os
import shutil
import signal
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.codehub.contracts.instances import started, wid
from testing.codehub.docker import DockerEngine
from testing.codehub.docker_world import DockerWorld, close_world, open_world

pytestmark = [
    pytest.mark.needs("docker", "root"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(600),
]


@pytest.fixture
async def box(docker_engine: DockerEngine, tmp_path: Path) -> AsyncIterator[DockerWorld]:
    tmp_path.chmod(0o711)
    world = await open_world(docker_engine, tmp_path)
    try:
        yield world
    finally:
        await close_world(world)


# Prints the name of each call and its error's number; 0 if it is allowed. Numbers of x86-64.
CALLS = """import ctypes, os, platform, socket, struct, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *words):
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(word) for word in (number, *words)))
    print(name, ctypes.get_errno() if result == -1 else 0)
for family in (1, 2, 10, 16):
    call(f"socket {family}", 41, family, 2, 0)
call("AF_VSOCK", 41, 40, 1, 0)
call("AF_ALG", 41, 38, 5, 0)
call("AF_BLUETOOTH", 41, 31, 3, 1)
pair = ctypes.create_string_buffer(8)
call("a pair of AF_UNIX", 53, 1, 1, 0, ctypes.addressof(pair))
call("a pair of AF_VSOCK", 53, 40, 1, 0, ctypes.addressof(pair))
call("no family", 41, -1, 1, 0)
call("AF_VSOCK with a long number", 41, (1 << 32) + 40, 1, 0)
params = ctypes.create_string_buffer(120)
call("io_uring_setup", 425, 4, ctypes.addressof(params))
call("keyctl", 250, 0, -3, 1)
call("add_key", 248, 0, 0, 0, 0, -3)
call("unshare a user namespace", 272, 0x10000000)
call("unshare a mount namespace", 272, 0x20000)
call("clone3", 435, 0, 0)
call("clone into a user namespace", 56, 0x10000000 | 17, 0, 0, 0, 0)
call("setns", 308, -1, 0)
call("bpf", 321, 0, 0, 0)
call("perf_event_open", 298, 0, 0, -1, -1, 0)
call("userfaultfd", 323, 0)
call("mount", 165, 0, 0, 0, 0, 0)
call("open_by_handle_at", 304, -1, 0, 0)
call("kexec_load", 246, 0, 0, 0, 0)
call("init_module", 175, 0, 0, 0)
call("pidfd_getfd", 438, -1, 0, 0)
call("mbind", 237, 0, 0, 0, 0, 0, 0)
call("personality without randomization", 135, 0x40000)
call("personality of Linux", 135, 0)
sys.stdout.flush()
if not os.fork():
    call("x32 getpid", 0x40000000 + 39)
    os._exit(0)
os.wait()
thread = threading.Thread(target=lambda: print("thread 0")); thread.start(); thread.join()
print("child", subprocess.run([sys.executable, "-c", ""]).returncode)
"""
REFUSED = {  # by the process sandbox too, with the same errors
    "AF_VSOCK": 97, "AF_ALG": 97, "AF_BLUETOOTH": 97, "a pair of AF_VSOCK": 97, "no family": 97,
    "AF_VSOCK with a long number": 97, "io_uring_setup": 38, "keyctl": 1, "add_key": 1,
    "unshare a user namespace": 1, "clone3": 38, "setns": 1, "bpf": 1, "perf_event_open": 1, "userfaultfd": 38,
    "mount": 1, "open_by_handle_at": 1,
    "kexec_load": 1, "init_module": 1,
}  # fmt: skip
REFUSED_BY_ENGINES = {
    "unshare a mount namespace", "clone into a user namespace", "pidfd_getfd", "mbind",
    "personality without randomization",
}  # fmt: skip


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the calls are those of x86-64")
async def test_a_container_has_the_system_calls_of_a_process_workspace_and_no_more(box: DockerWorld) -> None:
    await started(box, 1)
    (box.base / wid(1) / "calls.py").write_text(CALLS)
    libffi = next(Path("/usr/lib").glob("*/libffi.so.8"))  # of ctypes, which the tests' image does not have
    shutil.copy(libffi, box.base / wid(1))
    said = await box.ask(wid(1), "LD_LIBRARY_PATH=~ python3 ~/calls.py")
    assert "Traceback" not in said, said
    found = {name: int(number) for name, _, number in (line.rpartition(" ") for line in said.splitlines())}
    assert {name: found.pop(name) for name in REFUSED} == REFUSED, said
    assert all(found.pop(name) in (1, 38) for name in REFUSED_BY_ENGINES), said
    assert found == {
        **{f"socket {family}": 0 for family in (1, 2, 10, 16)},
        "a pair of AF_UNIX": 0,
        "personality of Linux": 0,
        "thread": 0,
        "child": 0,
    }, said


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="it is a program of i386")
async def test_a_program_of_another_architecture_gets_no_system_call(box: DockerWorld) -> None:
    """Its calls have other numbers, and `socketcall` passes the family in memory."""
    await started(box, 1)
    code, at = bytes.fromhex("b80100000031dbcd80"), 0x08048000  # exit(0) by int 0x80
    layout = (b"\x7fELF", 1, 1, 1, 0, 0, 2, 3, 1, at + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    header = struct.pack("<4sBBBBB7xHHIIIIIHHHHHH", *layout)
    segment = struct.pack("<IIIIIIII", 1, 0, at, at, 84 + len(code), 84 + len(code), 5, 0x1000)
    program = box.base / wid(1) / "i386"
    program.write_bytes(header + segment + code)
    program.chmod(0o755)
    said = await box.ask(wid(1), "~/i386 2>/dev/null; echo ended by $?")
    assert f"ended by {128 + signal.SIGSYS}" in said
