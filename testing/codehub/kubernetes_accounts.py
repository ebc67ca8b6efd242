"""Service accounts of the real node that have the rights CodeHub ships with, or fewer."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import yaml

from testing.codehub.kubernetes import DEPLOY, TIMEOUT_S, Node


def shipped_role() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "workspaces/role.yaml").read_text())
    found: dict[str, Any] = next(one for one in documents if one["kind"] == "Role")
    return found


def account_token(node: Node, namespace: str, without: str = "", verb: str = "") -> str:
    """Create an account and return its token.

    It has exactly the shipped Role, or all of it except for one resource or one of its verbs.
    """
    role = shipped_role()
    rules = [
        rule if rule["resources"] != [without] else {**rule, "verbs": [one for one in rule["verbs"] if one != verb]}
        for rule in role["rules"]
        if rule["resources"] != [without] or (verb and rule["verbs"] != [verb])
    ]
    assert (rules != role["rules"]) == bool(without)
    name = "-".join(filter(None, ("without", verb, without.replace("/", "-")))) if without else "codehub"
    documents = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {**role, "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": name}},
        },
    ]
    node.kubectl("apply", "-n", namespace, "-f", "-", given=yaml.safe_dump_all(documents))
    user = f"system:serviceaccount:{namespace}:{name}"
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        secret = json.loads(node.kubectl("get", "secret", name, "-n", namespace, "-o", "json"))
        token = (secret.get("data") or {}).get("token")
        granted = ("list", "pods") if (verb, without) != ("list", "pods") else ("get", "pods")
        is_bound = node.kubectl("auth", "can-i", *granted, "-n", namespace, "--as", user, check=False)
        if token and is_bound.strip() == "yes":
            return base64.b64decode(token).decode()
        time.sleep(0.2)
    raise AssertionError("the service account has no token or no rights")
