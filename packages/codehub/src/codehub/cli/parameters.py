"""`--param NAME=VALUE`: converts arguments to the values of a template's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

parameter_option = click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the template. May be given several times.",
)
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def given_parameters(texts: Iterable[str], known: Iterable[Mapping[str, Any]]) -> dict[str, str | int | float | bool]:
    """Convert by the template's types. Unknown parameters are passed on as text, so that the server rejects them."""
    types = {each["name"]: each["type"] for each in known}
    found: dict[str, str | int | float | bool] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--param {text!r}: write NAME=VALUE")
        found[name] = _value(name, value, types.get(name, "text"))
    return found


def _value(name: str, value: str, kind: str) -> str | int | float | bool:
    if kind == "switch":
        if value.lower() not in _SWITCHES:
            raise click.UsageError(f"--param {name}: write true or false")
        return _SWITCHES[value.lower()]
    if kind == "number":
        try:
            return int(value) if value.lstrip("+-").isdigit() else float(value)
        except ValueError as error:
            raise click.UsageError(f"--param {name}: {value!r} is not a number") from error
    return value
