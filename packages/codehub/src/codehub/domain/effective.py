"""Determines what a workspace runs from its row and the catalog, for the coordinator and the proxy. Pure."""

from __future__ import annotations

from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile, Catalog, Runs


def effective_profile(workspace: Workspace, catalog: Catalog, runs: Runs) -> tuple[str, AppProfile]:
    """Return (image, profile): a profile name or image reference, and how to run it.

    Raises Invalid if it may not be run.
    """
    template = workspace.template
    return catalog.resolve(workspace.image_ref, runs, run_as=template.profile if template is not None else "")
