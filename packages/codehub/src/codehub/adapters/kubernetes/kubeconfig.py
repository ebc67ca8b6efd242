"""The API server's address and credentials: from a kubeconfig file, or from a pod's mounted service account.

Reads and checks that configuration. `client` opens connections from it, and `credentials` handles tokens that change.
Nothing here uses the network.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from codehub.domain.errors import Invalid

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A kubeconfig with hundreds of clusters is about 100 KB. Anything much larger is another kind of file.
_MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints an ExecCredential, as shipped by cloud providers."""

    command: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    api_version: str
    provide_cluster_info: bool = False
    install_hint: str = ""


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate or key, inline or in a file that may be replaced at run time."""

    data: bytes = b""
    path: Path | None = None

    def read(self) -> bytes:
        return self.data if self.path is None else self.path.read_bytes()


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Access to one cluster as one user, with its default namespace."""

    server: str
    namespace: str = "default"
    authority: Pem | None = None
    server_name: str = ""
    insecure_skip_tls_verify: bool = False
    client_certificate: Pem | None = None
    client_key: Pem | None = None
    token: str = ""
    token_file: Path | None = None
    exec_plugin: ExecPlugin | None = None
    proxy_url: str = ""
    described_as: str = ""  # for messages: the file and context of this configuration


def in_cluster(env: Mapping[str, str], root: Path = SERVICE_ACCOUNT) -> ClusterAccess | None:
    """Return the service account of the current pod, or None outside a cluster."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    token = root / "token"
    if not host or not token.exists():
        return None
    namespace = root / "namespace"
    authority = root / "ca.crt"
    return ClusterAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=(namespace.read_text().strip() if namespace.exists() else "") or "default",
        authority=Pem(path=authority) if authority.exists() else None,
        token_file=token,
        described_as="the pod's service account",
    )


def find_access(env: Mapping[str, str], context: str = "", namespace: str = "") -> ClusterAccess:
    """Find the configuration in kubectl's order: $KUBECONFIG, the pod's service account, ~/.kube/config."""
    paths = [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    access = None
    if not paths:
        access = in_cluster(env)
        default = Path(env.get("HOME", "/")) / ".kube/config"
        paths = [default] if access is None and default.exists() else []
    if access is None:
        if not paths:
            raise Invalid(
                "CODEHUB_RUNTIME=kubernetes: no cluster is configured. Set KUBECONFIG to a kubeconfig file, or run CodeHub "
                "in the cluster with a service account"
            )
        access = load_kubeconfig(paths, context)
    elif context:
        raise Invalid("CODEHUB_K8S_CONTEXT is set, but there is no kubeconfig: contexts are a kubeconfig's")
    return replace(access, namespace=namespace) if namespace else access


def load_kubeconfig(paths: list[Path], context: str = "") -> ClusterAccess:
    """Load and merge kubeconfig files as kubectl does: the first file that defines a name wins."""
    merged: dict[str, dict[str, tuple[Mapping[str, Any], Path]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = ""
    for path in paths:
        document = _read(path)
        current = current or str(document.get("current-context") or "")
        for kind, found in merged.items():
            for item in document.get(kind) or []:
                body = item.get(kind[:-1]) if isinstance(item, dict) else None
                if not isinstance(body, dict) or not isinstance(item.get("name"), str):
                    raise Invalid(f"{path}: an entry of {kind} has no name or no {kind[:-1]}")
                found.setdefault(item["name"], (body, path))
    chosen = context or current
    where = ", ".join(map(str, paths))
    if not chosen:
        raise Invalid(f"{where}: no current-context; set CODEHUB_K8S_CONTEXT or run `kubectl config use-context`")
    if chosen not in merged["contexts"]:
        known = ", ".join(sorted(merged["contexts"])) or "none"
        raise Invalid(f"{where}: there is no context {chosen!r}; there are: {known}")
    body, path = merged["contexts"][chosen]
    cluster, cluster_path = _named(merged, "clusters", body.get("cluster"), path)
    user, user_path = _named(merged, "users", body.get("user"), path) if body.get("user") else ({}, path)
    return _access(
        cluster, cluster_path, user, user_path, str(body.get("namespace") or "default"), f"{path}, {chosen}"
    )


def _access(
    cluster: Mapping[str, Any],
    cluster_path: Path,
    user: Mapping[str, Any],
    user_path: Path,
    namespace: str,
    name: str,
) -> ClusterAccess:
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise Invalid(f"{cluster_path}: the cluster has no server address")
    if "auth-provider" in user:
        raise Invalid(f"{user_path}: auth-provider was removed from Kubernetes; use an exec plugin instead")
    if "username" in user:
        raise Invalid(f"{user_path}: basic authentication was removed from Kubernetes in 1.19")
    token_file = user.get("tokenFile")
    return ClusterAccess(
        server=server.rstrip("/"),
        namespace=namespace,
        authority=_pem(cluster, "certificate-authority", cluster_path),
        server_name=str(cluster.get("tls-server-name") or ""),
        insecure_skip_tls_verify=bool(cluster.get("insecure-skip-tls-verify")),
        client_certificate=_pem(user, "client-certificate", user_path),
        client_key=_pem(user, "client-key", user_path),
        token=str(user.get("token") or ""),
        token_file=_beside(user_path, token_file) if token_file else None,
        exec_plugin=_exec(user.get("exec"), user_path),
        proxy_url=str(cluster.get("proxy-url") or ""),
        described_as=name,
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise Invalid(f"{path} is too large to be a kubeconfig")
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"the kubeconfig {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the kubeconfig {path} is not YAML") from error
    if not isinstance(document, dict):
        raise Invalid(f"{path} is not a kubeconfig")
    return document


def _named(
    merged: Mapping[str, Mapping[str, tuple[Mapping[str, Any], Path]]], kind: str, name: object, path: Path
) -> tuple[Mapping[str, Any], Path]:
    found = merged[kind].get(str(name or ""))
    if found is None:
        raise Invalid(f"{path}: the context names {kind[:-1]} {name!r}, which is not defined")
    return found


def _pem(body: Mapping[str, Any], name: str, path: Path) -> Pem | None:
    """Return a certificate or key. `NAME-data` takes precedence over `NAME`, as in client-go."""
    inline = body.get(f"{name}-data")
    if inline:
        try:
            return Pem(data=base64.b64decode(str(inline), validate=True))
        except binascii.Error as error:
            raise Invalid(f"{path}: {name}-data is not base64") from error
    file = body.get(name)
    return Pem(path=_beside(path, file)) if file else None


def _beside(path: Path, file: object) -> Path:
    """Resolve a path relative to the kubeconfig."""
    return (path.parent / str(file)).absolute()


def _exec(body: object, path: Path) -> ExecPlugin | None:
    if body is None:
        return None
    if not isinstance(body, dict) or not body.get("command"):
        raise Invalid(f"{path}: the user's exec plugin has no command")
    command = str(body["command"])
    return ExecPlugin(
        command=str(_beside(path, command)) if "/" in command else command,
        arguments=tuple(map(str, body.get("args") or ())),
        env={str(item["name"]): str(item["value"]) for item in body.get("env") or []},
        api_version=str(body.get("apiVersion") or "client.authentication.k8s.io/v1"),
        provide_cluster_info=bool(body.get("provideClusterInfo")),
        install_hint=str(body.get("installHint") or ""),
    )
