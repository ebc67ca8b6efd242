"""What a workspace runs, from its row and the installation's catalog. The coordinator and the proxy both ask here. Pure."""

from __future__ import annotations

from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile, Catalog, Runs


def effective_profile(workspace: Workspace, catalog: Catalog, runs: Runs) -> tuple[str, AppProfile]:
    """(image, profile): the profile's name or an image reference, and how it is run. Invalid when it may not be run."""
    template = workspace.template
    return catalog.resolve(workspace.image_ref, runs, run_as=template.profile if template is not None else "")
