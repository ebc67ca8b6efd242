"""A click group that imports the module of a command when it runs: starting `codehub` costs one command's imports."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import click

# Module, attribute, and the line for the list of commands. The line is here so that `--help` imports no module.
Entry = tuple[str, str, str]


class LazyGroup(click.Group):
    """Has the commands of `entries` besides its own."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._entries, *(name for name in super().list_commands(ctx) if name not in self._entries)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(imported(entry[0]), entry[1])
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = {name: command.get_short_help_str(limit=80) for name, command in self.commands.items()}
        lines = own | {name: line for name, (_, _, line) in self._entries.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, lines[name]) for name in self.list_commands(ctx)])


def imported(module: str) -> ModuleType:
    """Import without garbage collections: imports create many objects and no garbage. Saves a sixth of the API's start.

    Later collections do not look through these objects either.
    """
    if module in sys.modules:
        return sys.modules[module]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        found = importlib.import_module(module)
        gc.freeze()
        return found
    finally:
        if was_enabled:
            gc.enable()
