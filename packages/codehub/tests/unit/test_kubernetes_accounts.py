"""What each part of CodeHub may do in a cluster, from the manifests that are applied."""

from __future__ import annotations

from typing import Any, cast

import pytest

from codehub.adapters.kubernetes.homes import ClaimOptions
from codehub.adapters.kubernetes.preflight import PERMISSIONS_OF, unmet_needs
from testing.codehub.kubernetes import rendered
from testing.codehub.kubernetes_objects import pod_spec

WORKSPACES = "codehub-workspaces"


def _rights(objects: list[dict[str, Any]], account: str) -> set[tuple[str, str, str, str]]:
    """Return (namespace, group, resource, verb); an empty namespace stands for the whole cluster."""
    found = set()
    for binding in objects:
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "codehub"}
        if not binding["kind"].endswith("RoleBinding") or subject not in binding["subjects"]:
            continue
        namespace = binding["metadata"].get("namespace", "")
        (role,) = [
            one
            for one in objects
            if one["kind"] == binding["roleRef"]["kind"]
            and one["metadata"]["name"] == binding["roleRef"]["name"]
            and one["metadata"].get("namespace", "") == namespace
        ]
        for rule in role["rules"]:
            assert "resourceNames" not in rule
            found |= {
                (namespace, group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


@pytest.mark.parametrize("overlay", ["trial", "production"])
@pytest.mark.parametrize("part", ["api", "proxy", "coordinator"])
def test_each_part_has_an_account_with_exactly_the_rights_it_needs(overlay: str, part: str) -> None:
    objects = rendered(overlay)
    accounts = {
        one["metadata"]["name"]: str((pod_spec(one) or {}).get("serviceAccountName"))
        for one in objects
        if one["kind"] == "Deployment" and one["metadata"]["name"] in PERMISSIONS_OF
    }
    assert len(set(accounts.values())) == 3, "none is shared"
    needed = {
        (WORKSPACES, group, f"{resource}/{sub}" if sub else resource, verb)
        for group, resource, sub, verbs in PERMISSIONS_OF[part]
        for verb in verbs
    }
    if overlay == "production" and part == "coordinator":
        needed.add(("", "", "nodes", "get"))
    assert _rights(objects, accounts[part]) == needed
    assert {"kind": "ServiceAccount", "name": accounts[part]} in [
        {"kind": one["kind"], "name": one["metadata"]["name"]}
        for one in objects
        if one["metadata"].get("namespace") == "codehub"
    ]


@pytest.mark.parametrize("overlay", ["trial", "production"])
def test_every_other_pod_has_no_token_of_an_account(overlay: str) -> None:
    for one in rendered(overlay):
        spec = pod_spec(one)
        if spec is not None and one["metadata"]["name"] not in PERMISSIONS_OF:
            assert spec["automountServiceAccountToken"] is False, one["metadata"]["name"]


def test_nobody_else_is_bound_to_a_role() -> None:
    subjects = [
        subject["name"]
        for one in rendered("production")
        if one["kind"].endswith("Binding")
        for subject in one["subjects"]
    ]
    assert sorted(set(subjects)) == ["codehub", "codehub-api", "codehub-proxy"]


_OF_THE_API_ALONE = {"CODEHUB_ADMIN_PASSWORD", "CODEHUB_TRUSTED_PROXY_SECRET"}
_SECRETS = _OF_THE_API_ALONE | {
    "CODEHUB_DATABASE_URL", "CODEHUB_REDIS_URL", "CODEHUB_ARCHIVE_URL", "CODEHUB_SECRETS_KEY",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
}  # fmt: skip


def _seen_of_the_secret(container: dict[str, Any], secret: str) -> set[str]:
    """Return the keys of the Secret whose values a container gets. `env` takes precedence over `envFrom`."""
    seen = set(_SECRETS) if {"secretRef": {"name": secret}} in container["envFrom"] else set()
    for variable in container.get("env", []):
        seen.discard(variable["name"])
        if "valueFrom" in variable:
            reference = variable["valueFrom"]["secretKeyRef"]
            # Absent in an installation that sets it in the ConfigMap.
            assert reference == {"name": secret, "key": variable["name"], "optional": True}
            seen.add(variable["name"])
        else:
            assert variable["value"] == "", "an empty variable counts as unset"
    return seen


@pytest.mark.parametrize("overlay", ["trial", "production"])
def test_each_part_gets_of_the_secret_what_it_uses(overlay: str) -> None:
    objects = rendered(overlay)
    # The trial's has a digest of its content in its name.
    secret = next((one["metadata"]["name"] for one in objects if one["kind"] == "Secret"), "codehub")
    seen = {
        container["name"]: _seen_of_the_secret(container, secret)
        for one in objects
        if one["kind"] == "Deployment" and one["metadata"]["name"] in PERMISSIONS_OF
        for container in cast(Any, pod_spec(one))["containers"]
    }
    assert seen == {
        "api": _SECRETS,  # it lists archives, encrypts users' secrets and creates the first user
        "coordinator": _SECRETS - _OF_THE_API_ALONE,
        "proxy": {"CODEHUB_DATABASE_URL", "CODEHUB_REDIS_URL"},
    }


async def test_a_program_that_is_none_of_the_parts_checks_no_rights_when_it_opens_the_cluster() -> None:
    """`codehub doctor --archives` ended with a KeyError."""
    no_client = cast(Any, None)
    assert await unmet_needs(no_client, ClaimOptions(), "doctor") == []
