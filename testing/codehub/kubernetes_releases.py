"""What each Kubernetes release accepts: the strict JSON schemas of its API, from the package kubernetes-validate."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

# Found without importing the package, which imports jsonschema.
_PACKAGE = importlib.util.find_spec("kubernetes_validate")
assert _PACKAGE is not None
assert _PACKAGE.origin is not None
_SCHEMAS = Path(_PACKAGE.origin).parent / "kubernetes-json-schema"
_STRICT = re.compile(r"v1\.(\d+)\.0-local-strict")

Json = Mapping[str, Any]


def releases() -> list[str]:
    """Return the releases whose schemas are there, oldest first."""
    found = (_STRICT.fullmatch(one.name) for one in _SCHEMAS.iterdir())
    return [f"1.{minor}" for minor in sorted(int(match[1]) for match in found if match)]


def problems(document: Json, release: str) -> list[str]:
    """Return what the release does not accept: unknown, missing and mistyped fields, or a kind that it does not have."""
    name = f"{document['kind']} {(document.get('metadata') or {}).get('name', '')}".strip()
    definitions = _definitions(release)
    group, _, version = str(document["apiVersion"]).rpartition("/")
    wanted = {"group": group, "version": version, "kind": document["kind"]}
    for key, schema in definitions.items():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            validator = _validator(release, key)
            return [f"{name}: {error.json_path}: {error.message}" for error in validator.iter_errors(document)]
    return [f"{name}: {release} has no {document['apiVersion']}"]


@cache
def _definitions(release: str) -> Mapping[str, Json]:
    text = (_SCHEMAS / f"v{release}.0-local-strict" / "_definitions.json").read_text(encoding="utf-8")
    found: Mapping[str, Json] = json.loads(text)["$defs"]
    return found


@cache
def _validator(release: str, key: str) -> Any:
    import jsonschema  # takes more than a second, which each process that only collects tests would spend

    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{key}", "$defs": _definitions(release)})
