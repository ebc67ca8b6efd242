"""All settings. `docs/configuration.md` is generated from this: those of `core`, of `control`, then of Kubernetes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from codehub.settings.control import ControlSettings
from codehub.settings.types import Pairs, Quantity, Words


class Settings(ControlSettings):
    """The effective settings."""

    kubeconfig: str = Field(
        "",
        alias="KUBECONFIG",
        description="The cluster for CODEHUB_RUNTIME=kubernetes. Empty: the service account of CodeHub's own pod.",
    )
    k8s_context: str = Field(
        "", alias="CODEHUB_K8S_CONTEXT", description="A context of the kubeconfig. Empty: its current context."
    )
    k8s_namespace: str = Field(
        "",
        alias="CODEHUB_K8S_NAMESPACE",
        description="Namespace of workspace pods and volumes. Empty: that of the context or of CodeHub's own pod.",
    )
    k8s_image: str = Field(
        "codehub:latest",
        alias="CODEHUB_K8S_IMAGE",
        description="CodeHub's own image. Workspace Pods take their tools from it, and archive and restore Jobs run it.",
    )
    k8s_storage_class: str = Field(
        "",
        alias="CODEHUB_K8S_STORAGE_CLASS",
        description="Storage class of homes. Empty: the cluster's default class.",
    )
    k8s_home_size: Quantity = Field("10Gi", alias="CODEHUB_K8S_HOME_SIZE", description="Size of a home's volume.")
    k8s_access_mode: Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"] = Field(
        "ReadWriteOnce",
        alias="CODEHUB_K8S_ACCESS_MODE",
        description="Access mode of homes. ReadWriteOncePod is safest, if the cluster (1.29 or later) and the driver "
        "support it.",
    )
    k8s_cpu_request: Quantity = Field(
        "100m", alias="CODEHUB_K8S_CPU_REQUEST", description="CPU that the scheduler reserves for a workspace."
    )
    k8s_memory_request: Quantity = Field(
        "512Mi", alias="CODEHUB_K8S_MEMORY_REQUEST", description="Memory that the scheduler reserves for a workspace."
    )
    k8s_ephemeral_storage: Quantity = Field(
        "10Gi",
        alias="CODEHUB_K8S_EPHEMERAL_STORAGE",
        description="How much a workspace may write outside its home.",
    )
    k8s_image_pull_secrets: Words = Field(
        (),
        alias="CODEHUB_K8S_IMAGE_PULL_SECRETS",
        description="Names of Secrets in the namespace, for private images.",
    )
    k8s_node_selector: Pairs = Field(
        (), alias="CODEHUB_K8S_NODE_SELECTOR", description="LABEL=VALUE pairs of the nodes that may run workspaces."
    )
    k8s_runtime_class: str = Field(
        "", alias="CODEHUB_K8S_RUNTIME_CLASS", description="A RuntimeClass, for example gvisor or kata."
    )
    k8s_priority_class: str = Field(
        "", alias="CODEHUB_K8S_PRIORITY_CLASS", description="The PriorityClass of workspace pods."
    )
