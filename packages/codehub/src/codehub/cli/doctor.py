"""`codehub doctor`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys

import click

from codehub.cli.boundaries import DEADLINE_S, check_boundaries
from codehub.cli.checks import CHECKS, Finding, Health
from codehub.cli.coordinator_check import check_coordinator
from codehub.cli.effective_settings import EffectiveSettings, effective_settings
from codehub.cli.leftovers import leftovers
from codehub.cli.output import console
from codehub.cli.secrets_key_check import check_secrets_key

_MARKS = {Health.GOOD: "ok      ", Health.WARNING: "warning ", Health.BAD: "PROBLEM "}


@click.command()
@click.option("--archives", "with_leftovers", is_flag=True, help="List archives, homes and containers without a row.")
@click.option(
    "--boundaries/--no-boundaries",
    default=True,
    show_default=True,
    help="Start two temporary workspaces and try to break out of one.",
)
@click.option(
    "--boundaries-timeout",
    type=click.IntRange(1, 600),
    default=DEADLINE_S,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for trying the boundaries.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def doctor(with_leftovers: bool, boundaries: bool, boundaries_timeout: int, as_json: bool) -> None:
    """Check the installation and explain how to fix problems.

    It also tries the boundaries of a workspace from inside a temporary one: whether it can reach CodeHub, this machine,
    other workspaces or cloud metadata, read others' files, or exceed its limits. A boundary that is NOT HELD is a problem.

    The exit code is 1 if there is a problem.

    \b
    Examples:
      codehub doctor
      codehub doctor --no-boundaries
      codehub doctor --archives
      codehub doctor --json | jq -r '.[] | select(.health == "problem") | .fix'
    """
    state = effective_settings(os.environ)
    findings = asyncio.run(
        leftovers(state) if with_leftovers else _check(state, boundaries_timeout if boundaries else 0)
    )
    if as_json:
        click.echo(json.dumps([_as_json(finding) for finding in findings], indent=1))
    else:
        output = console()
        for finding in findings:
            output.print(f"{_MARKS[finding.health]}{finding.part:15} {finding.message}")
            if finding.fix:
                output.print(f"{'':24}→ {finding.fix}")
    if any(finding.health is Health.BAD for finding in findings):
        raise click.exceptions.Exit(1)


def _as_json(finding: Finding) -> dict[str, object]:
    """`said` is the deprecated name of `message`. It will be removed in the next release."""
    return {**dataclasses.asdict(finding), "said": finding.message}


async def _check(state: EffectiveSettings, boundaries_timeout: int) -> list[Finding]:
    found = [finding for check in (*CHECKS, check_secrets_key, check_coordinator) for finding in await check(state)]
    if boundaries_timeout:
        if sys.stderr.isatty():
            click.echo("Trying the boundaries of a workspace from inside a temporary one…", err=True)
        found += await check_boundaries(state, boundaries_timeout)
    return found
