"""Every field that CodeHub and deploy/kubernetes use is one that the server knows, whichever release it is."""

from __future__ import annotations

import json

import pytest

from testing.codehub.kubernetes import Node, rendered
from testing.codehub.kubernetes_objects import created
from testing.codehub.kubernetes_schema import Json, unknown_fields

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]
# Components that an operator adds where the cluster has them: since 1.21, and by a separate installation.
OPTIONAL = {"PodDisruptionBudget", "HTTPRoute"}


@pytest.fixture(scope="module")
def definitions(node: Node) -> dict[str, Json]:
    return dict(json.loads(node.kubectl("get", "--raw", "/openapi/v2"))["definitions"])


def test_the_server_knows_every_field_of_what_codehub_creates(definitions: dict[str, Json]) -> None:
    found = [(one["kind"], unknown_fields(one, definitions)) for one in created()]
    assert {kind for kind, _ in found} == {"Pod", "Job", "PersistentVolumeClaim", "SelfSubjectAccessReview"}
    assert [one for one in found if one[1] != []] == []


def test_an_unknown_field_is_found(definitions: dict[str, Json]) -> None:
    pod, *_ = created()
    pod["spec"]["containers"][0]["securityContext"]["isSafe"] = True
    assert unknown_fields(pod, definitions) == ["Pod.spec.containers[0].securityContext.isSafe"]
    assert unknown_fields({"apiVersion": "v7", "kind": "Pod"}, definitions) is None


@pytest.mark.parametrize("overlay", ["trial", "production"])
def test_the_server_knows_every_field_of_what_is_shipped(overlay: str, definitions: dict[str, Json]) -> None:
    documents = rendered(overlay)
    found = {(one["kind"], one["metadata"]["name"]): unknown_fields(one, definitions) for one in documents}
    assert {kind for (kind, _), fields in found.items() if fields is None} <= OPTIONAL
    assert {key: fields for key, fields in found.items() if fields} == {}
