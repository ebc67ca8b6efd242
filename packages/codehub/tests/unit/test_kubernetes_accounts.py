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


async def test_a_program_that_is_none_of_the_parts_checks_no_rights_when_it_opens_the_cluster() -> None:
    """`codehub doctor --archives` ended with a KeyError."""
    no_client = cast(Any, None)
    assert await unmet_needs(no_client, ClaimOptions(), "doctor") == []
