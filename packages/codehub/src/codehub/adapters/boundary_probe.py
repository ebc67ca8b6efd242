"""The program that `codehub doctor` runs in throw-away workspaces: the attacker, and the neighbour that it attacks.

It is copied into the workspace's home and uses the standard library alone. Its plan is in the environment; each result
is a line of its output. It is bounded: an alarm ends it, and it takes no more than the plan says.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import signal
import socket
import sys
import time

MARK = "CODEHUB-PROBE "
VARIABLE = "CODEHUB_PROBE"
_CONNECT_TIMEOUT_S = 1.5
_CLONE_NEWUSER = 0x10000000
_STEP_BYTES = 1 << 20
_NO_IPV6 = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def tell(**values: object) -> None:
    print(MARK + json.dumps(values), flush=True)


def be_neighbour(socket_path: str, abstract: str, home: str) -> None:
    """Listen as a workspace may, and keep a file. All of it is for the attacker to find."""
    port = socket.create_server(("0.0.0.0", 0))
    by_path, by_name = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    by_path.bind(socket_path)
    by_name.bind("\0" + abstract)
    for listening in (by_path, by_name):
        listening.listen(8)
    with open(os.path.join(home, "secret"), "w") as file:
        file.write("secret\n")
    tell(port=port.getsockname()[1])
    while True:
        signal.pause()


def wait_for_network(interface: str, timeout_s: float) -> bool:
    """Before there is a way out nothing can be reached, which would prove nothing."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with open("/proc/self/net/route") as file:
            if any(line.split()[:2] == [interface, "00000000"] for line in file):
                return True
        time.sleep(0.02)
    return False


def located(target: str, port: int) -> tuple[str, int]:
    """Return host and port. Some only a workspace knows: `$HOST:$PORT` names variables of its environment."""
    if not target.startswith("$"):
        return target, port
    host, _, number = os.path.expandvars(target).rpartition(":")
    return (host, int(number)) if number.isdigit() else (target, port)


def try_tcp(targets: list[tuple[str, int, bool]]) -> list[tuple[bool | None, str]]:
    """All at once: what is dropped without an answer takes its time."""
    connections = [socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) for host, _, _ in targets]
    waiting = selectors.DefaultSelector()
    codes = []
    for number, (connection, (host, port, _)) in enumerate(zip(connections, targets, strict=True)):
        connection.setblocking(False)
        codes.append(errno.EDESTADDRREQ if host.startswith("$") else connection.connect_ex((host, port)))
        if codes[number] == errno.EINPROGRESS:
            waiting.register(connection, selectors.EVENT_WRITE, number)
    deadline = time.monotonic() + _CONNECT_TIMEOUT_S
    while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
        for key, _ in waiting.select(left):
            codes[key.data] = connections[key.data].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            waiting.unregister(key.fileobj)
    return [tcp_result(*each) for each in zip(connections, codes, targets, strict=True)]


def tcp_result(connection: socket.socket, code: int, target: tuple[str, int, bool]) -> tuple[bool | None, str]:
    host, port, answers = target
    where = f"{host}:{port}"
    with connection:
        # TCP can connect a free port to itself.
        if code == 0 and connection.getsockname() != connection.getpeername():
            return True, f"connected to {where}"
    if code == errno.EDESTADDRREQ:
        return None, f"the workspace does not know {host}"
    refused = code in (errno.EACCES, errno.EPERM) or (":" in host and code in _NO_IPV6)
    if answers or refused:
        return False, f"{where} was not reached"
    message = "no answer" if code == errno.EINPROGRESS else os.strerror(code)
    return None, f"no rule refuses {where}, and nothing answers there: {message}"


def try_unix(address: str, name: str) -> tuple[bool | None, str]:
    before = os.getcwd()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        try:
            if address.startswith("/"):
                # An address has at most 107 bytes, but a longer path is no protection.
                os.chdir(os.path.dirname(address))
                address = os.path.basename(address)
            connection.connect(address)
        except OSError as error:
            return False, f"{name}: {error}"
        finally:
            os.chdir(before)
    return True, f"connected to {name}"


def try_read(path: str) -> tuple[bool | None, str]:
    try:
        if os.path.isdir(path):
            names = os.listdir(path)
            return bool(names), f"saw {len(names)} names in {path}"
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        return False, f"{path}: {error}"
    return True, f"read {path}"


def try_memory(amount: int) -> tuple[bool | None, str]:
    """In a child, which the kernel is asked to end first."""
    child = os.fork()
    if child == 0:
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
            taken = []
            for _ in range(amount // _STEP_BYTES):
                taken.append(bytearray(b"x" * _STEP_BYTES))
            os._exit(0)
        finally:
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ended == 0, f"took {amount >> 20} MB, twice its limit" if ended == 0 else f"ended with {ended}"


def try_processes(amount: int, seconds: int) -> tuple[bool | None, str]:
    children = []
    try:
        for _ in range(amount):
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(seconds)
                signal.pause()
                os._exit(0)
            children.append(child)
    except OSError as error:
        return False, f"{len(children)} processes, then: {error}"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
    return True, f"started {amount} processes, twice its limit"


def try_user_namespace() -> tuple[bool | None, str]:
    try:
        import ctypes
    except ImportError as error:  # a Python without libffi: everything else can be tried
        return None, f"the system call cannot be made: {error}"
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(_CLONE_NEWUSER) == 0 else 1)
    made = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return made, "made a user namespace" if made else "refused"


def attempt(one: dict[str, object], seconds: int) -> tuple[bool | None, str]:
    means, target, amount = one["means"], str(one["target"]), int(str(one["amount"]))
    if means == "unix":
        return try_unix(target, target)
    if means == "abstract":
        return try_unix("\0" + target, f"the abstract socket {target}")
    if means == "read":
        return try_read(target)
    if means == "memory":
        return try_memory(amount)
    if means == "processes":
        return try_processes(amount, seconds)
    if means == "user-namespace":
        return try_user_namespace()
    return None, f"the probe does not know {means}"


def main() -> None:
    plan = json.loads(os.environ[VARIABLE])
    signal.alarm(plan["seconds"])
    if "abstract" in plan:
        be_neighbour(sys.argv[1], plan["abstract"], os.environ["HOME"])
    attempts = list(enumerate(plan["attempts"]))
    by_network = [(number, one) for number, one in attempts if one["means"] == "tcp"]
    if plan["interface"] and not wait_for_network(plan["interface"], plan["network_s"]):
        for number, _ in by_network:
            tell(number=number, succeeded=None, message="the workspace's network did not come up")
    else:
        results = try_tcp([(*located(one["target"], one["amount"]), one["answers"]) for _, one in by_network])
        for (number, _), (succeeded, message) in zip(by_network, results, strict=True):
            tell(number=number, succeeded=succeeded, message=message)
    for number, one in attempts:
        if one["means"] != "tcp":
            try:
                succeeded, message = attempt(one, plan["seconds"])
            except OSError as error:
                succeeded, message = None, f"the attempt itself failed: {error}"
            tell(number=number, succeeded=succeeded, message=message)
    tell(done=True)


if __name__ == "__main__":
    main()
