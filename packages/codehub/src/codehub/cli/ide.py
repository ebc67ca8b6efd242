"""`codehub ide install`: installs in advance what the first start of a workspace or web terminal would install."""

from __future__ import annotations

import os

import click

from codehub.adapters.ide.code_server import CodeServerInstall
from codehub.adapters.ide.jupyterlab import JupyterLabInstall
from codehub.adapters.ide.xterm import XtermInstall
from codehub.cli.effective_settings import effective_settings
from codehub.cli.options import json_option
from codehub.cli.output import console, print_json
from codehub.domain.model import Progress as Step


@click.group()
def ide() -> None:
    """Install the IDEs of process workspaces and the web terminal.

    \b
    Example:
      codehub ide install
    """


@ide.command()
@click.argument("name", type=click.Choice(["code-server", "jupyterlab", "xterm"]), default="code-server")
@json_option
def install(name: str, as_json: bool) -> None:
    """Install code-server with Node, JupyterLab or xterm into the data directory. Does nothing if it is installed.

    The dashboard's terminal uses xterm; opening the first terminal installs it too.

    \b
    Example:
      codehub ide install               takes about half a minute; otherwise the first workspace does it
      codehub ide install jupyterlab
      codehub ide install xterm
    """
    ide_dir = effective_settings(os.environ).settings.data_dir / "ide"
    installs = {"code-server": CodeServerInstall, "jupyterlab": JupyterLabInstall, "xterm": XtermInstall}
    target = installs[name](ide_dir)
    was_there = target.installed
    if not was_there:
        if isinstance(target, XtermInstall):
            target.ensure()
        else:
            _install(target, quiet=as_json)
    if as_json:
        print_json({"name": name, "path": str(target.home), "installed": not was_there})
    else:
        state = "is already installed" if was_there else "is installed"
        console().print(f"{name} {state}: {target.home}")


def _install(target: CodeServerInstall | JupyterLabInstall, *, quiet: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    output = console(err=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=quiet or not output.is_terminal
    ) as progress:
        bar = progress.add_task("install", total=None)

        def report(step: Step) -> None:
            progress.update(bar, description=step.step, completed=step.done, total=step.total)
            if not quiet and not output.is_terminal:
                number = min(step.done + 1, step.total or 1)
                output.print(f"{step.step} (step {number} of {step.total})")

        target.ensure(report)
