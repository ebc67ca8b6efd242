"""Starts `workspaced`, and restarts it whenever it dies.

Usage: `python -I -S -B workspaced/__main__.py [-- COMMAND …]`. The configuration is JSON in CODEHUB_WORKSPACED, or `@` and
the name of a file that holds it and is removed. With a COMMAND, the process becomes that command (the IDE) after starting a
supervisor beside it, and another one for the bridge to an IDE that listens only on a port. The IDE gets a head start: its
first page waits for nothing else. Without a COMMAND, it becomes the supervisor. `--hook CONFIGURATION` starts the
supervisor beside an IDE that runs already, and ends.

The configuration holds the secret of this start. The supervisor executes itself again and reads it from a pipe, so that it
is in no process's environment, where `cat /proc/*/environ` would print it into a log.

Every start of a workspace waits for this module, so it imports little. `json` and `contextlib`, for example, take as long
as the rest: they import regular expressions and collections.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn

if not __package__:
    # Run by file, in a workspace without CodeHub. Appended to the path, so that it shadows nothing.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
    __import__(__package__)

CONFIGURATION = "CODEHUB_WORKSPACED"
_SUPERVISE = (
    "--supervise"  # followed by the descriptors to read the configuration from and to write the environment to
)
_SUPERVISE_BRIDGE = "--supervise-bridge"  # followed by its socket and port
_HOOK = "--hook"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_SETTLED_S = 30.0  # a death after this long resets the restart delay
# How long the helper waits for the IDE to listen. It takes CPU time that a small IDE needs to start, and a large IDE takes
# longer than the helper, also when it starts this much later.
_HEAD_START_S, _POLL_S = 0.5, 0.01


def main(arguments: list[str]) -> None:
    if arguments[:1] == [_SUPERVISE]:
        with open(int(arguments[1]), encoding="utf-8") as pipe:
            configuration = parse(pipe.read())
        supervise_helper(configuration, environment_fd=int(arguments[2]))
    if arguments[:1] == [_SUPERVISE_BRIDGE]:
        supervise(lambda: run_bridge(arguments[1], int(arguments[2])))
    is_hook = arguments[:1] == [_HOOK]
    raw = arguments[1] if is_hook else os.environ.pop(CONFIGURATION, "")
    if not raw:
        sys.exit(f"workspaced is started by CodeHub, which gives it {CONFIGURATION}")
    if raw.startswith("@"):
        raw = take(raw[1:])
    configuration = parse(raw)
    if is_hook:
        write_to_log(str(configuration["runtime"]))
    os.environ.update(own_environment(configuration))
    os.environ.pop("CODEHUB_ENVIRONMENT_PIPE", None)  # for the IDE alone
    if arguments[:1] != ["--"] and not is_hook:
        become_helper(raw, -1)
    command = [] if is_hook else arguments[1:]
    if has_home(configuration):
        from .home_setup import set_up_shells

        set_up_shells(str(configuration["home"]), in_image=bool(configuration.get("in_image")))
    if command:
        from .with_environment import found_program

        command = [found_program(command[0]), *command[1:]]  # never a program that a user installed
        offer_code(command[0], configuration)
    if configuration.get("in_image"):
        from .with_environment import extend_path

        extend_path(str(configuration["home"]))
    read_fd = write_fd = -1
    if configuration.get("environment_pipe"):
        from .with_environment import open_pipe

        write_fd = open_pipe(str(configuration["environment_pipe"]))
        os.set_inheritable(write_fd, True)
    elif configuration.get("awaits_environment"):
        read_fd, write_fd = os.pipe()
        os.set_inheritable(write_fd, True)
    if bridge := configuration.get("bridge"):
        assert isinstance(bridge, list)
        beside(lambda: become_bridge(str(bridge[0]), str(bridge[1]), write_fd))
    beside(lambda: become_helper(raw, write_fd))
    if read_fd >= 0:
        os.close(write_fd)
        from .with_environment import awaited_environment

        os.environ.update(awaited_environment(read_fd))
    if is_hook:
        return
    add_repository_variables(str(configuration["home"]))
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def parse(text: str) -> dict[str, object]:
    """Parse JSON. The same scanner as in `json`, without what that imports."""
    try:
        from _json import make_scanner

        options: Any = _ScannerOptions
        found, _ = make_scanner(options)(text, 0)
    except (ImportError, AttributeError):  # another Python than CPython
        import json

        found = json.loads(text)
    assert isinstance(found, dict)
    return found


class _ScannerOptions:
    strict = True
    object_hook = object_pairs_hook = parse_constant = None
    parse_float = float
    parse_int = int


def write_to_log(runtime: str) -> None:
    """Write output to a file: the kubelet waits until no process has a hook's output open."""
    os.makedirs(runtime, mode=0o700, exist_ok=True)
    log = os.open(os.path.join(runtime, "workspaced.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, standard in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, standard)
    os.close(log)
    os.close(null)


def take(path: str) -> str:
    """Read a file and remove it."""
    try:
        with open(path, encoding="utf-8") as file:
            raw = file.read()
        os.unlink(path)
    except OSError as error:
        sys.exit(f"workspaced: {path}: {error.strerror}")
    return raw


def has_home(configuration: dict[str, object]) -> bool:
    """Return whether shells and Python are set up in the home."""
    return "pip" in configuration or bool(configuration.get("in_image"))


def wait_for_ide(configuration: dict[str, object]) -> None:
    """Wait until the IDE listens on its socket or port, but not longer than its head start."""
    ide = configuration.get("ide")
    if not ide or configuration.get("awaits_environment"):  # the IDE waits for the helper
        return
    from .netports import addresses

    latest = time.monotonic() + _HEAD_START_S
    while time.monotonic() < latest:
        if addresses(ide) if isinstance(ide, int) else os.path.exists(str(ide)):
            return
        time.sleep(_POLL_S)


def set_up_environment(configuration: dict[str, object]) -> None:
    from . import home_setup

    pip = configuration.get("pip")
    home_setup.set_up_environment(str(configuration["home"]), None if pip is None else str(pip))


def offer_code(program: str, configuration: dict[str, object]) -> None:
    from . import code_command

    env = dict(os.environ)
    code_command.offer(program, str(configuration["home"]), env)
    os.environ.update(env)


def own_environment(configuration: dict[str, object]) -> dict[str, str]:
    """Return variables for everything in the workspace: for git credentials, and the path of secrets."""
    from . import start_environment

    runtime = str(configuration["runtime"])
    env = start_environment.for_git(runtime)
    name = os.environ.get("CODEHUB_INSTANCE", "workspace")
    if owner := str(configuration.get("owner", "")):
        env |= start_environment.offer_git_identity(owner, runtime)
    env["CODEHUB_SECRETS_DIR"] = start_environment.secrets_folder(runtime, name)
    return env


def add_repository_variables(home: str) -> None:
    """Add the variables of devcontainer.json for the IDE. The helper adds them itself, because they may change."""
    from .with_environment import ide_variables, saved_environment

    if saved := saved_environment(home):
        os.environ.update(ide_variables(saved, os.environ))


def beside(work: Callable[[], NoReturn]) -> None:
    """Run in a process of its own: neither the end of the IDE nor its signals affect it."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            work()
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass


def become_bridge(path: str, port: str, environment_fd: int) -> NoReturn:
    if environment_fd >= 0:
        os.close(environment_fd)  # only for the helper
    execute_again(_SUPERVISE_BRIDGE, path, port)


def become_helper(raw: str, environment_fd: int) -> NoReturn:
    read_fd, write_fd = os.pipe()
    os.set_inheritable(read_fd, True)
    # Smaller than a pipe's buffer, so this never blocks.
    os.write(write_fd, raw.encode())
    os.close(write_fd)
    execute_again(_SUPERVISE, str(read_fd), str(environment_fd))


def execute_again(*own: str) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-B", os.path.abspath(__file__), *own])  # noqa: S606


def supervise_helper(configuration: dict[str, object], environment_fd: int) -> NoReturn:
    wait_for_ide(configuration)
    # Before the helper answers, so that whatever it runs finds the environment.
    first = (lambda: set_up_environment(configuration)) if has_home(configuration) else None
    supervise(lambda: run(configuration, environment_fd), first)


def supervise(work: Callable[[], None], first: Callable[[], None] | None = None) -> NoReturn:
    """Supervise one child at a time. Processes that outlive it are reaped by their new parent.

    `first` is done once, in a process of its own, which may fail.
    """
    import signal

    stopping = False
    child = 0

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        if child:
            try:
                os.kill(child, signal.SIGTERM)
            except ProcessLookupError:
                pass

    def await_child(work: Callable[[], None]) -> None:
        nonlocal child
        # A signal between the fork and the assignment would not reach the child, which would then run on.
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        if stopping:
            return
        child = os.fork()
        if child == 0:
            for number in ends:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
        if child == 0:
            end_by(work)
        _wait(child)
        child = 0

    ends = (signal.SIGTERM, signal.SIGINT)
    for number in ends:
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if first is not None:
        await_child(first)
    pause = _FIRST_PAUSE_S
    while not stopping:
        began = time.monotonic()
        await_child(work)
        pause = _FIRST_PAUSE_S if time.monotonic() - began > _SETTLED_S else min(pause * 2, _LONGEST_PAUSE_S)
        if not stopping:
            time.sleep(pause)
    os._exit(0)


def _wait(child: int) -> None:
    while True:
        try:
            pid, _ = os.wait()
        except ChildProcessError:
            return
        if pid == child:
            return


def run_bridge(path: str, port: int) -> None:
    from . import bridge

    bridge.run(path, port)


def run(configuration: dict[str, object], environment_fd: int) -> None:
    import asyncio

    from .app import Options
    from .listening import listen
    from .server import serve

    # Files that it creates are private to the user. Programs that it runs set 022 themselves.
    os.umask(0o077)
    home, runtime = str(configuration["home"]), str(configuration["runtime"])
    os.makedirs(runtime, mode=0o700, exist_ok=True)
    state = os.path.join(home, ".local", "state", "codehub")
    hidden = configuration.get("hidden_ports") or []
    assert isinstance(hidden, list)
    options = Options(
        home,
        runtime,
        state,
        dict(os.environ),
        tuple(int(port) for port in hidden),
        environment_fd=environment_fd,
    )
    secret, address = str(configuration["secret"]), str(configuration["listen"])
    asyncio.run(serve(options, secret, listen(address)))


def end_by(work: Callable[[], None]) -> NoReturn:
    """Do the work and exit."""
    code = 0
    try:
        work()
    except KeyboardInterrupt:
        pass
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Exception as error:  # noqa: BLE001 - the supervisor restarts it; the reason is in the instance's output
        print(f"workspaced: {error!r}", file=sys.stderr)
        code = 1
    os._exit(code)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        if sys.argv[1:2] != [_HOOK]:
            raise
        # A failed hook would end the workspace. It runs without its helper, which then does not answer.
        print(f"workspaced: {error}", file=sys.stderr)
