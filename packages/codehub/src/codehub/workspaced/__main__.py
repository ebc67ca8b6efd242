"""Starts `workspaced`, and restarts it whenever it dies.

Usage: `python -I -S -B workspaced/__main__.py [-- COMMAND …]`. The configuration is JSON in CODEHUB_WORKSPACED, or `@` and
the name of a file that holds it and is removed. With a COMMAND, the process becomes that command (the IDE) after starting a
supervisor beside it, and another one for the bridge to an IDE that listens only on a port. Without one, it becomes the
supervisor. `--hook CONFIGURATION` starts the supervisor beside an IDE that runs already, and ends.

The configuration holds the secret of this start. The supervisor executes itself again and reads it from a pipe, so that it
is in no process's environment, where `cat /proc/*/environ` would print it into a log.

Every start of a workspace waits for this module, so it imports little: `asyncio`, for example, takes longer than the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn

if not __package__:
    # Run by file, in a workspace without CodeHub. Appended to the path, so that it shadows nothing.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
    __import__(__package__)

CONFIGURATION = "CODEHUB_WORKSPACED"
_SUPERVISE = "--supervise"  # followed by the descriptor to read the configuration from
_HOOK = "--hook"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_SETTLED_S = 30.0  # a death after this long resets the restart delay


def main(arguments: list[str]) -> None:
    if arguments[:1] == [_SUPERVISE]:
        with open(int(arguments[1]), "rb") as pipe:
            supervise(json.loads(pipe.read()))
    is_hook = arguments[:1] == [_HOOK]
    raw = arguments[1] if is_hook else os.environ.pop(CONFIGURATION, "")
    if not raw:
        sys.exit(f"workspaced is started by CodeHub, which gives it {CONFIGURATION}")
    if raw.startswith("@"):
        raw = take(raw[1:])
    configuration = json.loads(raw)
    if is_hook:
        write_to_log(str(configuration["runtime"]))
    os.environ.update(own_environment(configuration))
    os.environ.pop("CODEHUB_ENVIRONMENT_PIPE", None)  # for the IDE alone
    if arguments[:1] != ["--"] and not is_hook:
        execute_again(raw)
    command = [] if is_hook else arguments[1:]
    set_up_home(configuration)
    if command:
        command = [found_program(command[0]), *command[1:]]  # never a program that a user installed
        offer_code(command[0], configuration)
    if configuration.get("in_image"):
        extend_path(str(configuration["home"]))
    read_fd = write_fd = -1
    pipe = configuration.get("environment_pipe")
    if pipe:
        from .with_environment import open_pipe

        write_fd = open_pipe(str(pipe))
        os.set_inheritable(write_fd, True)
        raw = json.dumps({**configuration, "environment_fd": write_fd})
    elif configuration.get("awaits_environment"):
        read_fd, write_fd = os.pipe()
        os.set_inheritable(write_fd, True)
        raw = json.dumps({**configuration, "environment_fd": write_fd})
    bridge = configuration.get("bridge")
    for one in [*([json.dumps({"bridge_only": bridge})] if bridge else []), raw]:
        if os.fork() == 0:
            # Separate from the IDE: neither its end nor its signals affect us.
            os.setsid()
            if one is not raw and write_fd >= 0:
                os.close(write_fd)  # only for the helper
            if os.fork() == 0:
                execute_again(one)
            os._exit(0)
        with contextlib.suppress(ChildProcessError):
            os.wait()
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


def set_up_home(configuration: dict[str, object]) -> None:
    """Set up the home before the IDE starts, so that its first terminal finds it complete.

    A separate process, which may fail.
    """
    words = [str(configuration["home"]), *([str(configuration["pip"])] if "pip" in configuration else [])]
    if len(words) == 1 and not configuration.get("in_image"):
        return
    child = os.fork()
    if child == 0:
        from . import home_setup

        end_by(lambda: home_setup.main(words))
    os.waitpid(child, 0)


def extend_path(home: str) -> None:
    """Programs of the user come first, as in a process workspace; those that CodeHub adds to the image come last."""
    path, added = os.environ.get("PATH") or os.defpath, os.environ.get("CODEHUB_PROGRAMS")
    own = [f"{home}/.local/bin", f"{home}/.venv/bin"]
    os.environ["PATH"] = ":".join([*own, path, *([added] if added else [])])


def offer_code(program: str, configuration: dict[str, object]) -> None:
    from . import code_command

    env = dict(os.environ)
    code_command.offer(program, str(configuration["home"]), env)
    os.environ.update(env)


def found_program(name: str) -> str:
    """Return where `exec` finds a program, or its name. (`shutil.which` takes longer to import than to run.)"""
    paths = [os.path.join(folder, name) for folder in os.get_exec_path()] if "/" not in name else []
    return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), name)


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


def execute_again(raw: str) -> NoReturn:
    read_fd, write_fd = os.pipe()
    os.set_inheritable(read_fd, True)
    # Smaller than a pipe's buffer, so this never blocks.
    os.write(write_fd, raw.encode())
    os.close(write_fd)
    own = [sys.executable, "-I", "-S", "-B", os.path.abspath(__file__), _SUPERVISE, str(read_fd)]
    os.execv(sys.executable, own)  # noqa: S606


def supervise(configuration: dict[str, object]) -> NoReturn:
    """Supervise one child at a time. Processes that outlive it are reaped by their new parent."""
    import signal

    stopping = False
    child = 0

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    pause = _FIRST_PAUSE_S
    while not stopping:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            run(configuration)
        _wait(child)
        child = 0
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


def run(configuration: dict[str, object]) -> NoReturn:
    if "bridge_only" in configuration:
        from . import bridge

        end_by(lambda: bridge.run(configuration["bridge_only"]))
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
    fd = configuration.get("environment_fd")
    options = Options(
        home,
        runtime,
        state,
        dict(os.environ),
        tuple(int(port) for port in hidden),
        environment_fd=fd if isinstance(fd, int) else -1,
    )
    secret, address = str(configuration["secret"]), str(configuration["listen"])
    end_by(lambda: asyncio.run(serve(options, secret, listen(address))))


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
