"""Templates that administrators offer to users. TOML → a checked `Template` → the settings of one workspace.

Pure. All mistakes are reported at once, each with its location (`templates.web.size.memory`), so that an editor can show
them beside their lines. `parameters` defines the parameters and how they are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from codehub.domain.environment_names import changes_every_program, is_own, is_variable_name
from codehub.domain.errors import Conflict, Invalid
from codehub.domain.images import parse_image
from codehub.domain.parameters import NAME, CompilePattern, Parameter, Value, fill, parse_parameter, placeholders
from codehub.domain.repository import RepositorySource, check_no_credentials, parse_source
from codehub.domain.schedule import Schedule, parse_schedule
from codehub.domain.table_reader import Mistake, Mistakes, TableReader
from codehub.domain.template_options import (
    AS_INSTALLED,
    NO_OPTIONS,
    KubernetesOptions,
    Size,
    parse_kubernetes,
    parse_size,
)
from codehub.domain.units import parse_duration, shown_duration

_TEMPLATE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LONGEST_COMMAND = 8192
_LONGEST_DESCRIPTION = 1024
_LONGEST_VALUE = 32_768
# With a shorter TTL, a workspace would be put to sleep while its page still loads.
SHORTEST_TTL = timedelta(minutes=1)
LONGEST_TTL = timedelta(days=366)


class Access(StrEnum):
    """Who may create workspaces from it."""

    USERS = "users"
    ADMINS = "admins"


@dataclass(frozen=True, slots=True)
class Template:
    """One `[templates.NAME]`. Texts may contain `{parameters.NAME}` until `render` fills them in."""

    name: str
    description: str = ""
    access: Access = Access.USERS
    profile: str = ""
    image: str = ""
    size: Size = AS_INSTALLED
    repo_url: str = ""
    repo_ref: str = ""
    repo_path: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    setup: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    ttl_standby: timedelta | None = None
    ttl_archive: timedelta | None = None
    schedule: Schedule | None = None
    kubernetes: KubernetesOptions = NO_OPTIONS
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A pushed version: its text, its author and the time."""

    name: str
    version: int
    source: str
    created_by: str
    created_at: datetime
    archived_at: datetime | None
    workspaces: int  # the number of workspaces that use the template, in any version


def check_known(newest: StoredVersion, username: str, base: int | None) -> None:
    """Raise Conflict if a push would replace a version that its author does not know.

    Without the version that the text is based on, an author is taken to know what they pushed themselves.
    """
    if newest.version == base or (base is None and newest.created_by == username):
        return
    at = f"{newest.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    yours = f"; your text is based on version {base}" if base else ""
    raise Conflict(
        f"{newest.name}: the newest version is {newest.version}, by {newest.created_by} ({at}){yours}. Nothing was pushed."
    )


def parse_templates(parsed: Mapping[str, object], compile_pattern: CompilePattern) -> Mapping[str, Template]:
    """Parse the templates of one TOML document. Raises Mistakes with all mistakes in it."""
    mistakes: list[Mistake] = []
    for key in parsed:
        if key != "templates":
            mistakes.append(Mistake(key, "only [templates.NAME] tables belong in this file"))
    tables = parsed.get("templates", {})
    found: dict[str, Template] = {}
    if not isinstance(tables, dict):
        mistakes.append(Mistake("templates", "must be a table of templates"))
        tables = {}
    elif not tables and not mistakes:
        mistakes.append(Mistake("", "the file has no [templates.NAME] table"))
    for name, table in tables.items():
        where = f"templates.{name}"
        if not _TEMPLATE_NAME.fullmatch(name):
            mistakes.append(Mistake(where, "a template's name is lower-case letters, digits and '-', at most 63"))
        elif not isinstance(table, dict):
            mistakes.append(Mistake(where, "must be a table"))
        else:
            reader = TableReader(where, table, mistakes)
            found[name] = _template(name, reader, compile_pattern)
    if mistakes:
        raise Mistakes(mistakes)
    return found


def render(template: Template, given: Mapping[str, Value]) -> Template:
    """Fill in the parameters. Raises Mistakes if a value is missing, unknown or not allowed."""
    mistakes: list[Mistake] = []
    values: dict[str, str] = {}
    for name in given:
        if name not in template.parameters:
            mistakes.append(Mistake(f"parameters.{name}", "the template has no such parameter"))
    for name, parameter in template.parameters.items():
        try:
            values[name] = parameter.text_of(given.get(name))
        except Invalid as error:
            mistakes.append(Mistake(f"parameters.{name}", str(error)))
    if mistakes:
        raise Mistakes(mistakes)
    return replace(
        template,
        image=fill(template.image, values),
        repo_url=fill(template.repo_url, values),
        repo_ref=fill(template.repo_ref, values),
        repo_path=fill(template.repo_path, values),
        env=MappingProxyType({name: fill(value, values) for name, value in template.env.items()}),
        # Commands read parameters from the environment (see `parameter_env`): text inserted into a shell line could be
        # another command.
    )


def source_of(rendered: Template) -> RepositorySource | None:
    """Return the repository of a rendered template."""
    return parse_source(rendered.repo_url, rendered.repo_ref, rendered.repo_path) if rendered.repo_url else None


def parameter_env(template: Template, given: Mapping[str, Value]) -> Mapping[str, str]:
    """Return the parameters as environment variables for setup commands: `CODEHUB_PARAM_VERSION` for `version`."""
    return {_parameter_variable(name): each.text_of(given.get(name)) for name, each in template.parameters.items()}


def _parameter_variable(name: str) -> str:
    return f"CODEHUB_PARAM_{name.upper().replace('-', '_')}"


_KNOWN = (
    "description, access, profile, image, size, repo, env, setup, ports, ttl_standby, ttl_archive, schedule, kubernetes, "
    "parameters"
)


def _template(name: str, reader: TableReader, compile_pattern: CompilePattern) -> Template:
    parameters = _parameters(reader, compile_pattern)
    access = reader.parsed("access", _access) or Access.USERS
    repo_url, repo_ref, repo_path = _repo(reader)
    template = Template(
        name=name,
        description=reader.text("description"),
        access=access,
        profile=reader.text("profile"),
        image=reader.text("image"),
        size=parse_size(reader.table("size")),
        repo_url=repo_url,
        repo_ref=repo_ref,
        repo_path=repo_path,
        env=_env(reader),
        setup=_setup(reader),
        ports=_ports(reader),
        ttl_standby=reader.parsed("ttl_standby", _ttl),
        ttl_archive=reader.parsed("ttl_archive", _ttl),
        schedule=_schedule(reader.table("schedule")),
        kubernetes=parse_kubernetes(reader.table("kubernetes")),
        parameters=MappingProxyType(parameters),
    )
    reader.end(_KNOWN)
    if len(template.description) > _LONGEST_DESCRIPTION:
        reader.wrong("description", f"has at most {_LONGEST_DESCRIPTION} characters")
    _check_placeholders(template, reader)
    _check_fixed_texts(template, reader)
    return template


def _access(text: str) -> Access:
    try:
        return Access(text)
    except ValueError as error:
        raise Invalid("must be 'users' or 'admins'") from error


def _ttl(text: str) -> timedelta:
    ttl = parse_duration(text)
    if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        raise Invalid(f"must be from {shown_duration(SHORTEST_TTL)} to {shown_duration(LONGEST_TTL)}")
    return ttl


def _repo(reader: TableReader) -> tuple[str, str, str]:
    if reader.holds("repo", str):
        return reader.text("repo"), "", ""
    table = reader.table("repo")
    if table is None:
        return "", "", ""
    found = table.text("url"), table.text("ref"), table.text("path")
    if not found[0]:
        table.wrong("url", "is missing")
    table.end("url, ref, path")
    return found


def _env(reader: TableReader) -> Mapping[str, str]:
    env = reader.strings("env")
    for name, value in env.items():
        if "\0" in value or len(value) > _LONGEST_VALUE:
            reader.wrong(f"env.{name}", f"must be a text of at most {_LONGEST_VALUE} characters")
        if not is_variable_name(name):
            reader.wrong(f"env.{name}", "is not the name of an environment variable")
        elif changes_every_program(name):
            reader.wrong(f"env.{name}", "would change every program in the workspace")
        elif is_own(name):
            reader.wrong(f"env.{name}", "is set by CodeHub; change it in ~/.profile with a setup command")
    return MappingProxyType(dict(env))


def _setup(reader: TableReader) -> tuple[str, ...]:
    commands = tuple(str(item) for item in reader.items("setup", str, "commands"))
    for number, command in enumerate(commands):
        if not command.strip() or len(command) > _LONGEST_COMMAND or "\0" in command:
            reader.wrong(f"setup[{number}]", f"must be a command of 1 to {_LONGEST_COMMAND} characters")
        elif placeholders(command):
            reader.wrong(f"setup[{number}]", "reads parameters from the environment: write $CODEHUB_PARAM_NAME")
    return commands


def _ports(reader: TableReader) -> tuple[int, ...]:
    ports = tuple(int(str(item)) for item in reader.items("ports", int, "port numbers"))
    if not all(1 <= port <= 65_535 for port in ports):
        reader.wrong("ports", "are numbers from 1 to 65535")
    return ports


def _schedule(reader: TableReader | None) -> Schedule | None:
    if reader is None:
        return None
    start, stop, days = reader.text("start"), reader.text("stop"), reader.text("days") or "weekdays"
    jitter = reader.parsed("jitter", parse_duration)
    reader.end("start, stop, days, jitter")
    try:
        return parse_schedule(start, days, timedelta(minutes=10) if jitter is None else jitter, stop)
    except Invalid as error:
        reader.wrong("", str(error))
        return None


def _parameters(reader: TableReader, compile_pattern: CompilePattern) -> dict[str, Parameter]:
    tables = reader.table("parameters")
    found: dict[str, Parameter] = {}
    if tables is None:
        return found
    for name in tables.remaining():
        if not NAME.fullmatch(name):
            tables.wrong(name, "a parameter's name is lower-case letters, digits, '-' and '_'")
            continue
        table = tables.table(name)
        other = next((each for each in found if _parameter_variable(each) == _parameter_variable(name)), None)
        if other is not None:
            tables.wrong(name, f"setup commands could not tell it from {other!r}: choose another name")
        elif table is not None and (parameter := parse_parameter(name, table, compile_pattern)) is not None:
            found[name] = parameter
    return found


def _check_placeholders(template: Template, reader: TableReader) -> None:
    """Check that every `{parameters.NAME}` names a parameter."""
    texts = {
        "image": template.image,
        "repo.url": template.repo_url,
        "repo.ref": template.repo_ref,
        "repo.path": template.repo_path,
        **{f"env.{name}": value for name, value in template.env.items()},
    }
    for key, text in texts.items():
        for name in placeholders(text) - set(template.parameters):
            reader.wrong(key, f"there is no parameter {name!r}")
    for name in placeholders(template.image) & set(template.parameters):
        if not template.parameters[name].is_bounded:
            reader.wrong("image", f"the parameter {name!r} could name any image: give it choices or a pattern")


def _check_fixed_texts(template: Template, reader: TableReader) -> None:
    """Check texts without placeholders now instead of when a user creates a workspace."""
    if template.image and not placeholders(template.image):
        try:
            parse_image(template.image)
        except Invalid as error:
            reader.wrong("image", str(error))
    if template.repo_url:
        try:
            if placeholders(template.repo_url + template.repo_ref + template.repo_path):
                check_no_credentials(template.repo_url)
            else:
                source_of(template)
        except Invalid as error:
            reader.wrong("repo", str(error))
