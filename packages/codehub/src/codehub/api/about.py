"""What this installation offers and how it behaves, for signed-in users."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter

from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.views import AboutView, LimitsView, ProfileView

router = APIRouter(tags=["about"])


@router.get("/about", responses=signed_in())
async def about(ctx: Ctx, who: Who) -> AboutView:
    """The available profiles, the limits, and when workspaces sleep, are archived and are purged."""
    config = ctx.config
    return AboutView(
        version=version("codehub"),
        profiles=[
            ProfileView(name=name, image=profile.image, default=name == config.default_profile)
            for name, profile in sorted(ctx.deps.profiles.items())
        ],
        allowed_images=list(config.allowed_images),
        limits=LimitsView(max_running_per_user=config.limits.per_user, max_running_global=config.limits.in_all),
        ttl_standby_seconds=config.ttl_standby_s,
        ttl_archive_seconds=config.ttl_archive_s,
        deleted_retention_seconds=config.deleted_retention_s,
        workspace_url=config.workspace_url,
        port_sharing=config.port_sharing,
    )
