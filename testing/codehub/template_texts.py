"""Templates from short TOML texts, for tests."""

from __future__ import annotations

import tomllib

from codehub.domain.templates import Template, parse_templates
from codehub.services.patterns import compile_pattern


def read_template(text: str) -> Template:
    """Return the template `a` whose table holds this text. Raises Mistakes."""
    (template,) = parse_templates(tomllib.loads(f"[templates.a]\n{text}"), compile_pattern).values()
    return template
