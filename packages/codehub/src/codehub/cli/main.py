"""The `codehub` command: maps subcommands to modules, which are loaded on demand.

The exit code says what kind of failure it was: see `Exit`, and the help of `codehub` itself.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import click

from codehub import __version__
from codehub.cli.credential_file import load_credentials
from codehub.cli.lazy_group import Entry, LazyGroup
from codehub.domain import errors


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    UNAUTHORIZED = 3
    DENIED = 4
    NOT_FOUND = 5
    CONFLICT = 6
    UNREACHABLE = 7
    INCOMPLETE = 8
    INTERRUPTED = 130


_COMMANDS: Final[Mapping[str, Entry]] = {
    "up": ("codehub.cli.up", "up", "Run CodeHub on this machine with everything it needs."),
    "down": ("codehub.cli.down", "down", "Stop a running CodeHub and its workspaces."),
    "env": ("codehub.cli.env", "env", "Print the effective settings as NAME=value lines."),
    "serve": ("codehub.cli.serve", "serve", "Run one process: api, proxy or coordinator."),
    "migrate": ("codehub.cli.migrate", "migrate", "Update the database schema."),
    "backup": ("codehub.cli.backup", "backup", "Back up the database, homes and archives while CodeHub runs."),
    "restore": ("codehub.cli.restore", "restore", "Restore a backup into an empty installation."),
    "doctor": ("codehub.cli.doctor", "doctor", "Check the installation and explain how to fix problems."),
    "demo": ("codehub.cli.demo", "demo", "Create a few workspaces to look around."),
    "ide": ("codehub.cli.ide", "ide", "Install the IDE of process workspaces."),
    "login": ("codehub.cli.login", "login", "Sign in and store an API token."),
    "logout": ("codehub.cli.login", "logout", "Remove the stored token and revoke it."),
    "whoami": ("codehub.cli.login", "whoami", "Show who is signed in, and where."),
    "tokens": ("codehub.cli.tokens", "tokens", "Manage your API tokens."),
    "ws": ("codehub.cli.ws", "ws", "Manage workspaces."),
    "templates": ("codehub.cli.templates", "templates", "Manage what workspaces are made from."),
    "ssh": ("codehub.cli.ssh", "ssh", "Open a shell in a workspace with OpenSSH."),
    "config-ssh": ("codehub.cli.ssh", "config_ssh", "Set up `ssh NAME.codehub` and desktop IDEs."),
    "keys": ("codehub.cli.ssh", "keys", "Manage your SSH public keys."),
    "git-auth": ("codehub.cli.user_setup", "git_auth", "Manage your credentials for git hosts."),
    "secrets": ("codehub.cli.user_setup", "secrets", "Manage your secrets for workspaces."),
    "dotfiles": ("codehub.cli.user_setup", "dotfiles", "Choose the repository of your dotfiles."),
    "port-forward": ("codehub.cli.ssh", "port_forward", "Forward ports of a workspace to this machine."),
    "admin": ("codehub.cli.admin", "admin", "Manage users, recover and undelete workspaces."),
    "completion": ("codehub.cli.completion", "completion", "Print the completion script for a shell."),
}

_EXIT_OF: Final[tuple[tuple[type[errors.CodeHubError], Exit], ...]] = (
    (errors.Invalid, Exit.USAGE),
    (errors.Unauthorized, Exit.UNAUTHORIZED),
    (errors.Denied, Exit.DENIED),
    (errors.NotFound, Exit.NOT_FOUND),
    (errors.Conflict, Exit.CONFLICT),
    (errors.LimitExceeded, Exit.CONFLICT),
    (errors.TooManyRequests, Exit.CONFLICT),
    (errors.BackendDown, Exit.UNREACHABLE),
    (errors.Unavailable, Exit.UNREACHABLE),
    (errors.Incomplete, Exit.INCOMPLETE),
)


@click.group(cls=LazyGroup, entries=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="codehub")
def cli() -> None:
    """Self-hosted dev workspaces that cost nothing while idle.

    \b
    Get started:
      codehub up                 run CodeHub on this machine
      codehub login              sign in from this shell
      codehub ws create hello    create a workspace
      codehub ws open hello      open it in the browser
      codehub COMMAND --help     show help and examples

    \b
    Exit codes: 0 success, 1 failure, 2 usage error, 3 not signed in, 4 not allowed, 5 not found,
      6 not possible in this state or over a limit, 7 no answer in time, 8 done, but not completely,
      130 interrupted.
    """


def exit_code_of(error: errors.CodeHubError) -> Exit:
    """Map an error to an exit code. The only place for this."""
    return next((code for kind, code in _EXIT_OF if isinstance(error, kind)), Exit.FAILED)


def main() -> int:
    # A process that ends frees everything at once. Searching it for cycles first takes as long as importing click.
    atexit.register(gc.freeze)
    if sys.stdout is None:  # started with its output closed (`codehub … >&-`)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    code = _run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        _drop_output()
        click.echo(f"codehub: the output cannot be written: {error.strerror}", err=True)
        return Exit.FAILED
    return code


def _drop_output() -> None:
    """Discard buffered output after its reader is gone, so that the interpreter does not write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> int:
    try:
        load_credentials(os.environ)
        # Without standalone mode, click returns the code of an `Exit` instead of raising it.
        code = cli.main(prog_name="codehub", standalone_mode=False)
        return code if isinstance(code, int) else Exit.DONE
    except click.Abort:
        click.echo("codehub: interrupted", err=True)
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except errors.CodeHubError as error:
        from codehub.cli.output import console

        console(err=True).print(f"codehub: {error}")
        return exit_code_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader of our output has exited (`codehub ws ls | head`); click then exits by itself.
        _drop_output()
        return Exit.DONE
    except OSError as error:
        if error.filename is None and error.errno == errno.ENOSPC:
            _drop_output()
            click.echo(f"codehub: the output cannot be written: {error.strerror}", err=True)
        else:
            click.echo(f"codehub: {error}", err=True)
        return Exit.FAILED


if __name__ == "__main__":
    sys.exit(main())
