"""What is decided about Kubernetes objects without a cluster: outlooks, errors, bounded lines, manifests."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.adapters.kubernetes.client import lines
from codehub.adapters.kubernetes.cluster import current_claim
from codehub.adapters.kubernetes.diagnosis import (
    Failed,
    Started,
    Starting,
    exit_reason,
    is_node_lost,
    last_warning,
    node_lost_message,
    outlook,
)
from codehub.adapters.kubernetes.errors import Expired, Forbidden, InvalidObject, Refusal, to_error
from codehub.adapters.kubernetes.manifests import (
    COMPLETE,
    COMPLETED_AT,
    InstancePod,
    PodOptions,
    TransferJob,
    instance_pod,
    transfer_job,
)
from codehub.adapters.kubernetes.objects import Claim, Meta, Pod, decode_job, decode_node, decode_pod
from codehub.adapters.kubernetes.preflight import access_mode, probe_pod, probed
from codehub.adapters.kubernetes.quantity import quantity
from codehub.adapters.kubernetes.transfer import job_name
from codehub.domain.errors import BackendDown, Conflict, ImagePullFailed, NotFound, OutOfSpace, Transient
from codehub.domain.observed import InstanceSeen, Observed, apply_observation
from testing.codehub.workspaces import workspace

WORKSPACE = "0190a000-0000-7000-8000-000000000001"


def pod(phase: str, state: dict[str, Any] | None = None, **status: Any) -> Pod:
    containers = [{"name": "ide", "state": state}] if state is not None else []
    return decode_pod(
        {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": phase, "containerStatuses": containers, **status},
        }
    )


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def test_a_running_or_ended_pod_has_started() -> None:
    assert outlook(pod("Running", {"running": {}})) == Started()
    assert outlook(pod("Failed", {"terminated": {"exitCode": 1}})) == Started()


def test_an_init_container_that_failed_fails_the_start_in_its_own_words() -> None:
    ended = {"name": "helper", "state": {"terminated": {"exitCode": 1, "message": "this image has no tools"}}}
    done = {"name": "helper", "state": {"terminated": {"exitCode": 0}}}
    for initial, phase in ((ended, "Failed"), (ended, "Pending")):
        item = {"status": {"phase": phase, "initContainerStatuses": [initial]}}
        found = outlook(decode_pod(item))
        assert isinstance(found, Failed)
        assert str(found.error) == "the pod's init container helper failed: this image has no tools"
    assert isinstance(
        outlook(decode_pod({"status": {"phase": "Pending", "initContainerStatuses": [done]}})), Starting
    )


def test_a_proxy_that_a_mesh_adds_does_not_keep_a_workspace_alive_whose_ide_has_ended() -> None:
    proxy = {"name": "mesh-proxy", "state": {"running": {}}}

    def beside_proxy(state: dict[str, Any], **status: Any) -> Pod:
        containers = [proxy, {"name": "ide", "state": state}]
        return decode_pod({"status": {"phase": "Running", "containerStatuses": containers, **status}})

    crashed = beside_proxy({"terminated": {"exitCode": 3}})
    assert not crashed.is_running
    assert crashed.is_over
    assert not crashed.has_ended, "it is deleted like any Pod that runs"
    assert outlook(crashed) == Started()
    assert exit_reason(crashed) == "ExitCode:3"
    assert beside_proxy({"running": {}}).is_running
    native = decode_pod({"status": {"phase": "Running", "initContainerStatuses": [proxy]}})
    assert not native.is_running, "a native sidecar alone is no IDE"
    killed = {"name": "mesh-proxy", "state": {"terminated": {"exitCode": 137}}}
    both_ended = beside_proxy({"terminated": {"exitCode": 3}}, phase="Failed", initContainerStatuses=[killed])
    assert outlook(both_ended) == Started(), "it is not the sidecar that failed the start"


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"])
def test_an_image_that_cannot_be_pulled_fails_at_once_in_the_kubelets_words(reason: str) -> None:
    found = outlook(pod("Pending", waiting(reason, "manifest unknown")))
    assert isinstance(found, Failed)
    assert isinstance(found.error, ImagePullFailed)
    assert f"{reason}: manifest unknown" in str(found.error)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", "dial tcp: i/o timeout"),
        ("ImagePullBackOff", 'Back-off pulling image "a": ErrImagePull: dial tcp: i/o timeout'),
    ],
)
def test_a_registry_that_times_out_is_tried_again(reason: str, message: str) -> None:
    found = outlook(pod("Pending", waiting(reason, message)))
    assert isinstance(found, Failed)
    assert type(found.error) is Transient


def test_a_container_that_cannot_be_made_fails_and_one_that_is_being_made_does_not() -> None:
    assert isinstance(outlook(pod("Pending", waiting("CreateContainerConfigError", "no such secret"))), Failed)
    assert outlook(pod("Pending", waiting("ContainerCreating"))) == Starting("ContainerCreating on n1")


def test_what_the_scheduler_says_is_passed_on() -> None:
    message = "0/3 nodes are available: 3 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    found = outlook(pod("Pending", conditions=[condition]))
    assert isinstance(found, Starting)
    assert found.says.startswith(f"Unschedulable: {message}; add nodes")
    assert found.is_unschedulable


def test_why_a_pod_ended() -> None:
    assert exit_reason(pod("Failed", {"terminated": {"reason": "OOMKilled", "exitCode": 137}})) == (
        "OOMKilled; raise its memory (CODEHUB_INSTANCE_MEMORY)"
    )
    assert exit_reason(pod("Failed", {"terminated": {"exitCode": 3}})) == "ExitCode:3"
    assert exit_reason(pod("Succeeded", {"terminated": {"exitCode": 143}})) is None
    evicted = pod("Failed", reason="Evicted", message="The node was low on resource: memory.")
    said = exit_reason(evicted)
    assert said is not None
    assert said.startswith("Evicted: The node was low on resource: memory.; raise its memory request")
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}
    assert exit_reason(pod("Failed", {"terminated": {"exitCode": 137}}, conditions=[preempted])) == (
        "PreemptionByScheduler: m"
    )
    not_after_all = {**preempted, "status": "False"}
    assert exit_reason(pod("Failed", {"terminated": {"exitCode": 3}}, conditions=[not_after_all])) == "ExitCode:3"


def test_a_running_pod_that_is_not_ready_is_on_a_node_that_does_not_answer() -> None:
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    lost = pod("Running", {"running": {}}, conditions=[ready])
    assert is_node_lost(lost)
    assert "the node n1 does not answer since 2026-01-01T00:00:00Z" in node_lost_message(lost)
    assert not is_node_lost(pod("Running", {"running": {}}, conditions=[{**ready, "status": "True"}]))
    assert not is_node_lost(pod("Pending", waiting("ContainerCreating"), conditions=[ready]))
    gated = {**ready, "reason": "ReadinessGatesNotReady", "message": "an admission webhook added a gate"}
    assert not is_node_lost(pod("Running", {"running": {}}, conditions=[gated])), "its kubelet answers"


@pytest.mark.parametrize("kind", ["FailureTarget", "Failed"])
def test_a_job_has_failed_as_soon_as_a_current_release_says_that_it_will(kind: str) -> None:
    condition = {"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "too many failures"}
    assert decode_job({"status": {"conditions": [condition]}}).failure == "BackoffLimitExceeded: too many failures"
    assert decode_job({"status": {"conditions": [{**condition, "status": "False"}]}}).failure == ""


def test_a_node_is_out_of_service_by_its_taint() -> None:
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    assert decode_node({"spec": {"taints": [taint]}}).out_of_service
    assert not decode_node({"spec": {}}).out_of_service
    assert decode_node({}).ready == "Unknown"


def test_the_newest_warning_is_shown_with_what_to_do() -> None:
    events = [
        {"type": "Normal", "reason": "Pulled", "lastTimestamp": "9"},
        {"type": "Warning", "reason": "FailedMount", "message": "timed out", "lastTimestamp": "2"},
        {"type": "Warning", "reason": "Old", "lastTimestamp": "1"},
    ]
    assert last_warning(events) == "FailedMount: timed out; check the volume's driver on that node"
    repeated = {"type": "Warning", "reason": "Newest", "eventTime": "0", "series": {"lastObservedTime": "3"}}
    assert last_warning([*events, repeated]) == "Newest"
    assert last_warning([]) == ""


@pytest.mark.parametrize(
    ("code", "reason", "message", "kind"),
    [
        (401, "Unauthorized", "Unauthorized", BackendDown),
        (403, "Forbidden", "pods is forbidden", Forbidden),
        (403, "Forbidden", "exceeded quota: q, requested: pods=1", OutOfSpace),
        (404, "NotFound", 'pods "p" not found', NotFound),
        (404, "", "404 page not found", BackendDown),
        (409, "Conflict", "Precondition failed", Conflict),
        (410, "Expired", "too old resource version", Expired),
        (422, "Invalid", "spec.x is wrong", InvalidObject),
        (429, "TooManyRequests", "slow down", BackendDown),
        (500, "", "boom", BackendDown),
        (503, "", "", BackendDown),
        (418, "", "teapot", Transient),
        (422, "Invalid", "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", Forbidden),
        (400, "BadRequest", 'admission webhook "w" denied the request: no', Forbidden),
        (500, "InternalError", 'failed calling webhook "w": the request denied the request', BackendDown),
    ],
)
def test_a_refusal_becomes_the_error_that_asks_for_the_right_reaction(
    code: int, reason: str, message: str, kind: type[Exception]
) -> None:
    raw = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()
    error = to_error(Refusal.parse(code, raw), "create Pod")
    assert type(error) is kind
    assert message in str(error)


def test_doctor_names_an_image_that_lacks_the_tools_of_workspaces() -> None:
    def ended(message: str) -> Pod:
        return pod("Succeeded", {"terminated": {"exitCode": 0, "message": message}})

    (lacking,) = probed(ended("blocked timed out\nno tools"), "registry/codehub:1")
    assert lacking.message == "registry/codehub:1 has no tools for workspaces, so none can start"
    assert "Dockerfile" in lacking.fix
    assert [check.fix for check in probed(ended("blocked timed out"), "registry/codehub:1")] == ["", "", ""]
    _, unwritable, _ = probed(ended("blocked timed out\nvolume [Errno 13] Permission denied"), "registry/codehub:1")
    assert unwritable.message == "a new home cannot be written: [Errno 13] Permission denied"
    assert "fsGroup" in unwritable.fix


def test_a_missing_permission_and_an_admission_rule_are_told_apart() -> None:
    role = to_error(
        Refusal(403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"'), "create Pod"
    )
    assert "Check its Role" in str(role)
    rule = to_error(
        Refusal(403, "Forbidden", 'pods "p" is forbidden: no PriorityClass with name y was found'), "create Pod"
    )
    assert str(rule).startswith("an admission rule of the cluster refuses to create Pod")
    assert "Role" not in str(rule)


@given(st.binary(max_size=200), st.integers(400, 599))
def test_any_answer_is_a_refusal_with_a_message(raw: bytes, code: int) -> None:
    assert str(to_error(Refusal.parse(code, raw), "do it"))


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
async def test_lines_are_the_same_however_the_stream_is_cut(parts: list[bytes], size: int) -> None:
    whole = b"\n".join(part.replace(b"\n", b"") for part in parts) + b"\n"

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(whole), size):
            yield whole[start : start + size]

    assert [line async for line in lines(pieces())] == [line for line in whole.split(b"\n") if line.strip()]


async def test_a_line_that_never_ends_gets_no_more_memory() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    with pytest.raises(BackendDown, match="too long"):
        assert [line async for line in lines(endless(), longest=10_000)] == []


def test_quantities() -> None:
    assert quantity("250m") == 0.25
    assert quantity("4Gi") == 4 * 2**30
    assert quantity("1e3") == 1000
    assert quantity("12345n") == pytest.approx(1.2345e-5)


def test_a_jobs_name_fits_into_a_label_whatever_the_operation() -> None:
    assert len(job_name(WORKSPACE, "0190a000-0000-7000-8000-000000000002.0190a000-0000-7000-8000-000000000003")) <= 63
    assert job_name(WORKSPACE, "a") != job_name(WORKSPACE, "b")


def test_doctors_pod_runs_where_workspaces_do_and_fits_into_a_quota() -> None:
    """Otherwise doctor would find fault with a private registry or a pool of nodes that workspaces can use."""
    gpu = {"key": "gpu", "operator": "Exists"}
    options = PodOptions(
        image_pull_secrets=("registry",), runtime_class="gvisor", node_selector={"pool": "a"}, tolerations=(gpu,)
    )
    spec = probe_pod("codehub:1", options)["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert (spec["runtimeClassName"], spec["nodeSelector"], spec["tolerations"]) == ("gvisor", {"pool": "a"}, [gpu])
    assert spec["containers"][0]["resources"]["limits"].keys() == {"cpu", "memory", "ephemeral-storage"}
    assert "nodeSelector" not in probe_pod("codehub:1", PodOptions())["spec"]


def test_a_pod_does_not_reserve_its_whole_limit_of_the_nodes_disk() -> None:
    """Without a request, the API server takes the limit as one."""
    what = InstancePod("p", "i", WORKSPACE, "image", 8080, {}, "c", "u", "d")

    def request(**options: str) -> object:
        resources = instance_pod(what, PodOptions(**options))["spec"]["containers"][0]["resources"]  # type: ignore[arg-type]
        return resources["requests"]["ephemeral-storage"]

    assert request() == "256Mi"
    assert request(ephemeral_storage="100Mi") == "100Mi", "a request above the limit is refused"


def test_options_become_fields_of_the_pod_and_those_not_given_do_not() -> None:
    options = PodOptions(image_pull_secrets=("s",), runtime_class="gvisor", extra_resources={"nvidia.com/gpu": "1"})
    made = instance_pod(
        InstancePod("n", "i", WORKSPACE, "image", 8080, {"A": "b"}, "claim", "uid", "digest"), options
    )
    assert made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert made["spec"]["runtimeClassName"] == "gvisor"
    assert "affinity" not in made["spec"]
    job = TransferJob("n", "i", WORKSPACE, "op", "archive", "image", "claim", "uid", "secret", read_only=True)
    template = transfer_job(job, options)["spec"]["template"]["spec"]
    assert template["restartPolicy"] == "Never"
    assert template["volumes"][0]["persistentVolumeClaim"]["readOnly"] is True


def test_labels_of_a_template_do_not_replace_codehubs_own() -> None:
    """They are refused when a template is read. Network policies and every delete rely on them, so this holds anyway."""
    given = {"codehub.dev/role": "transfer", "codehub.dev/spec": "x", "example.org/team": "a"}
    options = PodOptions(labels=given, annotations=given)
    pod = instance_pod(InstancePod("n", "i", "w", "image", 8080, {}, "c", "uid", "digest"), options)["metadata"]
    job = transfer_job(TransferJob("n", "i", "w", "op", "archive", "codehub:1", "c", "uid", "s", True), options)
    made = job["spec"]["template"]["metadata"]
    assert (pod["labels"]["codehub.dev/role"], made["labels"]["codehub.dev/role"]) == ("instance", "transfer")
    assert pod["annotations"]["codehub.dev/spec"] == "digest"
    assert pod["labels"]["example.org/team"] == made["annotations"]["example.org/team"] == "a"


@pytest.mark.parametrize(
    "value", ["", "$", "pa$$word", "$(SECRET)", "$$(SECRET)", "$$$(SECRET)$", "a$(NONE)b", "$SECRET"]
)
def test_a_variable_has_the_value_that_a_user_wrote(value: str) -> None:
    """The kubelet replaces `$(NAME)` by an earlier variable, and `$$` by `$`: a password would become another one."""
    what = InstancePod("n", "i", "w", "image", 8080, {"SECRET": "s", "GIVEN": value}, "c", "uid", "digest")
    known: dict[str, str] = {}
    for each in instance_pod(what, PodOptions())["spec"]["containers"][0]["env"]:
        known[each["name"]] = expanded(each["value"], known)
    assert known == {"SECRET": "s", "GIVEN": value}


def expanded(text: str, known: dict[str, str]) -> str:
    """Expand a value as the kubelet does (k8s.io/kubernetes/third_party/forked/golang/expansion)."""

    def one(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else known.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def test_an_instance_on_a_lost_node_is_unknown_with_the_reason_and_nothing_is_decided() -> None:
    row = workspace()
    seen = Observed(None, None, InstanceSeen(exists=True, unknown="the node n1 does not answer"))
    container = apply_observation(row, seen, datetime(2026, 1, 1, tzinfo=UTC)).conditions.container_ready
    assert container.is_unknown
    assert container.message == "the node n1 does not answer"


def claim(uid: str, second: int, version: str | None, *, deleting: bool = False) -> Claim:
    annotations = {COMPLETE: "true"} | ({} if version is None else {COMPLETED_AT: version})
    created = f"2026-11-17T16:00:{second:02}Z"
    return Claim(Meta("c", "n", uid, "99", created, deleting=deleting, annotations=annotations))


def test_the_home_is_the_first_whole_claim_even_among_those_of_one_second() -> None:
    first, late = claim("z", 1, "98"), claim("a", 1, "1002")
    assert current_claim([late, first]) is first
    assert current_claim([claim("z", 1, None), late]) == claim("z", 1, None), "of a release that did not note it"
    assert current_claim([claim("z", 0, "1002"), first]) == claim("z", 0, "1002"), "seconds decide first"
    assert current_claim([claim("z", 1, "98", deleting=True), late]) is late
    assert current_claim([]) is None


@pytest.mark.parametrize(
    ("version", "mode", "said", "is_right"),
    [
        ((1, 20), "ReadWriteOnce", "ReadWriteOnce", True),
        ((1, 29), "ReadWriteOnce", "CODEHUB_K8S_ACCESS_MODE=ReadWriteOncePod is safer", True),
        ((1, 29), "ReadWriteOncePod", "ReadWriteOncePod", True),
        ((1, 28), "ReadWriteOncePod", "needs Kubernetes 1.29", False),
        ((1, 37), "ReadWriteMany", "ReadWriteMany", True),
    ],
)
def test_doctor_says_which_access_mode_homes_have(
    version: tuple[int, int], mode: str, said: str, is_right: bool
) -> None:
    found = access_mode(version, mode)
    assert said in found.message
    assert (found.fix == "") is is_right
