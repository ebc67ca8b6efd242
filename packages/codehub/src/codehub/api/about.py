"""What this installation offers and how it behaves, for signed-in users."""

from __future__ import annotations

from importlib.metadata import version

from pydantic import Field

from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.views import LimitsView, View

router = api_router("about")


class ProfileView(View):
    name: str
    image: str
    default: bool


class AboutView(View):
    """What this installation offers and how it behaves."""

    version: str
    profiles: list[ProfileView]
    allowed_images: list[str] = Field(
        description="Glob patterns of images that users may choose in addition to the profiles."
    )
    limits: LimitsView
    ttl_standby_seconds: float
    ttl_archive_seconds: float
    deleted_retention_seconds: float
    workspace_url: str = Field(description="The workspace proxy's address.")
    port_sharing: str = Field(description="The widest that ports may be shared: owner, users or link.")


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
        limits=config.limits_view,
        ttl_standby_seconds=config.ttl_standby_s,
        ttl_archive_seconds=config.ttl_archive_s,
        deleted_retention_seconds=config.deleted_retention_s,
        workspace_url=config.workspace_url,
        port_sharing=config.port_sharing,
    )
