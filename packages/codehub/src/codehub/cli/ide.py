"""`codehub ide install`: what the first start of a workspace would install, ahead of it."""

from __future__ import annotations

import os

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from codehub.adapters.ide.code_server import CodeServerInstall
from codehub.cli.inforce import in_force
from codehub.cli.output import console
from codehub.domain.model import Progress as Step


@click.group()
def ide() -> None:
    """The IDEs that workspaces of the process runtime run."""


@ide.command()
@click.argument("name", type=click.Choice(["code-server"]), default="code-server")
def install(name: str) -> None:
    """Install code-server (and the Node it runs on) into the data directory, unless it is there.

    JupyterLab comes with CodeHub's extra: pip install 'codehub[jupyterlab]'.
    """
    target = CodeServerInstall(in_force(os.environ).settings.data_dir / "ide")
    if target.installed:
        console().print(f"code-server is there: {target.home}", soft_wrap=True)
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn(), console=console(err=True)
    ) as progress:
        bar = progress.add_task(f"install {name}", total=None)

        def report(step: Step) -> None:
            progress.update(bar, description=step.step, completed=step.done, total=step.total)

        target.ensure(report)
    console().print(f"installed code-server into {target.home}", soft_wrap=True)
