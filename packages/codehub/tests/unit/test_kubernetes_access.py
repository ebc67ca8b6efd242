"""Kubeconfig files, in-cluster configuration, exec plugins and tokens that rotate."""

from __future__ import annotations

import base64
import json
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
import yaml

from codehub.adapters.homes.work import Workers
from codehub.adapters.kubernetes.backends import KubernetesOptions, open_kubernetes
from codehub.adapters.kubernetes.credentials import Credentials
from codehub.adapters.kubernetes.kubeconfig import (
    ClusterAccess,
    ExecPlugin,
    Pem,
    find_access,
    in_cluster,
    load_kubeconfig,
)
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import BackendDown, Invalid


def _config(**more: object) -> dict[str, object]:
    return {
        "clusters": [
            {"name": "c", "cluster": {"server": "https://127.0.0.1:6443/", "certificate-authority": "ca.crt"}}
        ],
        "users": [{"name": "u", "user": {"token": "t0"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "ns1"}},
            {"name": "two", "context": {"cluster": "c", "user": "u"}},
        ],
        "current-context": "one",
        **more,
    }


def _write(path: Path, document: object) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_current_context_is_used_unless_another_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "config", _config())
    access = load_kubeconfig([path])
    assert (access.server, access.namespace, access.token) == ("https://127.0.0.1:6443", "ns1", "t0")
    assert access.authority is not None
    assert access.authority.path == tmp_path / "ca.crt", "relative to the file"
    assert load_kubeconfig([path], "two").namespace == "default"
    with pytest.raises(Invalid, match="there are: one, two"):
        load_kubeconfig([path], "three")


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    first = _write(tmp_path / "a", {"users": [{"name": "u", "user": {"token": "first"}}], "current-context": "two"})
    second = _write(tmp_path / "b", _config())
    access = find_access({"KUBECONFIG": f"{first}:{second}"}, namespace="mine")
    assert (access.token, access.namespace) == ("first", "mine")


def test_inline_data_wins_over_a_file(tmp_path: Path) -> None:
    user = {
        "client-certificate-data": base64.b64encode(b"pem").decode(),
        "client-certificate": "no",
        "client-key": "k",
    }
    access = load_kubeconfig([_write(tmp_path / "config", _config(users=[{"name": "u", "user": user}]))])
    assert access.client_certificate is not None
    assert access.client_certificate.read() == b"pem"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("a string", "is not a kubeconfig"),
        (_config(clusters=[]), "not defined"),
        (_config(users=[{"name": "u", "user": {"auth-provider": {}}}]), "exec plugin"),
        (_config(users=[{"name": "u", "user": {"client-key-data": "%%"}}]), "not base64"),
        (_config(**{"current-context": ""}), "CODEHUB_K8S_CONTEXT"),
        (_config(clusters=[{"name": "c", "cluster": {"server": "ftp://x"}}]), "no server address"),
    ],
)
def test_a_broken_kubeconfig_is_refused_with_the_reason(tmp_path: Path, document: object, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        load_kubeconfig([_write(tmp_path / "config", document)])


def test_without_any_configuration_it_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="Set KUBECONFIG"):
        find_access({"HOME": str(tmp_path)})
    with pytest.raises(Invalid, match="cannot be read"):
        find_access({"KUBECONFIG": str(tmp_path / "none")})


def test_a_pods_service_account_is_found_and_its_token_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("codehub")
    (tmp_path / "ca.crt").write_text("pem")
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert access is not None
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "codehub")
    assert in_cluster({}, tmp_path) is None


class _Now:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def test_a_rotated_token_file_is_read_again_after_a_minute_or_a_refusal(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    now = _Now()
    credentials = Credentials(ClusterAccess("https://x", token_file=file), now)
    assert await credentials.token() == "one"
    file.write_text("two")
    assert await credentials.token() == "one"
    now.now += timedelta(seconds=61)
    assert await credentials.token() == "two"
    file.write_text("three")
    credentials.refuse()
    assert await credentials.token() == "three"
    file.unlink()
    credentials.refuse()
    with pytest.raises(BackendDown, match="cannot be read"):
        await credentials.token()


def _plugin(path: Path, script: str) -> ExecPlugin:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ExecPlugin(str(path), ("a",), {"COUNT": str(path.parent / "count")}, "client.authentication.k8s.io/v1")


async def test_an_exec_plugin_is_run_once_until_its_token_expires(tmp_path: Path) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin", "expirationTimestamp": "2026-01-01T00:10:00Z"},
    }
    plugin = _plugin(tmp_path / "plugin", f"echo x >> $COUNT; echo '{json.dumps(answer)}'")
    now = _Now()
    credentials = Credentials(ClusterAccess("https://x", exec_plugin=plugin), now)
    assert [await credentials.token() for _ in range(3)] == ["from-plugin"] * 3
    assert (tmp_path / "count").read_text() == "x\n"
    now.now += timedelta(minutes=9, seconds=31)
    await credentials.token()
    assert (tmp_path / "count").read_text() == "x\nx\n"


async def test_a_plugin_is_told_how_to_reach_the_cluster_if_it_asks_to(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"authority")
    answer = '{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}'
    plugin = _plugin(tmp_path / "plugin", f"echo \"$KUBERNETES_EXEC_INFO\" > $COUNT; echo '{answer}'")
    access = ClusterAccess(
        "https://x",
        server_name="api",
        authority=Pem(path=tmp_path / "ca.pem"),
        exec_plugin=replace(plugin, provide_cluster_info=True),
    )
    assert await Credentials(access).token() == "t"
    assert json.loads((tmp_path / "count").read_text())["spec"]["cluster"] == {
        "server": "https://x",
        "tls-server-name": "api",
        "certificate-authority-data": "YXV0aG9yaXR5",
    }


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo wrong >&2; exit 3", "failed with code 3: wrong"),
        ("echo secret-token", "printed no ExecCredential"),
        ('echo \'{"apiVersion": "v2", "status": {"token": "secret-token"}}\'', "answered as v2"),
        ('echo \'{"apiVersion": "client.authentication.k8s.io/v1", "status": {}}\'', "neither a token"),
    ],
)
async def test_a_plugin_that_fails_is_a_backend_that_is_down_and_its_token_is_not_repeated(
    tmp_path: Path, script: str, said: str
) -> None:
    plugin = _plugin(tmp_path / "plugin", script)
    with pytest.raises(BackendDown, match=said) as caught:
        await Credentials(ClusterAccess("https://x", exec_plugin=plugin)).token()
    assert "secret-token" not in str(caught.value)


async def test_a_cluster_that_cannot_be_reached_is_reported_at_start_and_stops_nothing(tmp_path: Path) -> None:
    away = _config()
    away["clusters"] = [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}]
    options = KubernetesOptions(kubeconfig=str(_write(tmp_path / "config", away)))
    store = Store((tmp_path / "archives").as_uri())
    workers = Workers()
    backends = open_kubernetes(options, "installation", store, workers)
    try:
        with structlog.testing.capture_logs() as said:
            await backends.report_unusable()
        assert [one["log_level"] for one in said] == ["error"]
        assert "127.0.0.1:9" in said[0]["error"]
        assert "codehub doctor" in said[0]["fix"]
        with pytest.raises(BackendDown):
            await backends.instances.list_all()
        assert backends.cluster.client.writes == 0
    finally:
        await backends.cluster.close()
        workers.close()
        store.close()
