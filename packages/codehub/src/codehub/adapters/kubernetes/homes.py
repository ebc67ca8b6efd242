"""Homes as PersistentVolumeClaims, one per incarnation. Archives and restores run in Jobs (`transfer`).

A claim is complete when its annotation says so. The annotation is written last, by a patch that is bound to the claim's
uid. All removals are bound to a uid too. A claim that is being deleted counts as incomplete until it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from codehub.adapters.homes.bridge import FromThread, from_loop
from codehub.adapters.homes.stored import StoredHomes
from codehub.adapters.homes.work import Kind, Workers
from codehub.adapters.kubernetes.cluster import Cluster, current_claim, is_whole
from codehub.adapters.kubernetes.errors import AlreadyExists
from codehub.adapters.kubernetes.manifests import (
    COMPLETE,
    COMPLETED_AT,
    INCARNATION,
    RESTORED_FROM,
    HomeClaim,
    PodOptions,
    home_claim,
)
from codehub.adapters.kubernetes.objects import INSTALLATION, ROLE, ROLE_HOME, WORKSPACE, Claim, decode_claim
from codehub.adapters.kubernetes.quantity import quantity
from codehub.adapters.kubernetes.transfer import TransferJobs
from codehub.adapters.kubernetes.transfer_client import Transfer
from codehub.adapters.kubernetes.transfer_server import NeedsWriting
from codehub.adapters.objectstore.layout import Meta, parse_key
from codehub.adapters.objectstore.layout import archive_key as key_of
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import Checkpoint, find_receipt, nowhere, read_meta, upload_compressed
from codehub.adapters.objectstore.transfer import Job as Work
from codehub.domain.errors import CodeHubError, Conflict, DataLost, FenceLost, NotFound, OutOfSpace, Transient
from codehub.domain.model import HomeCtx, Progress
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeKey, HomeState, HomeStatus
from codehub.ports.instances import Mount, MountKind

_GONE_TIMEOUT_S: Final = 180.0
# An archive may be larger than the volume: some file systems compress, or store equal blocks once.
_MOST_PER_SIZE: Final = 2


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """How homes are provisioned. An empty class means the cluster's default."""

    storage_class: str = ""
    size: str = "10Gi"
    access_mode: str = "ReadWriteOnce"


class PvcHomes(StoredHomes):
    name = "pvc"

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        image: str,
        *,
        claims: ClaimOptions | None = None,
        pods: PodOptions | None = None,
        workers: Workers | None = None,
        at: Checkpoint = nowhere,
    ) -> None:
        super().__init__(store, workers, at)
        self._cluster = cluster
        self._options = claims or ClaimOptions()
        self._jobs = TransferJobs(cluster, image, pods or PodOptions())

    async def ping(self) -> None:
        await self._cluster.ping()

    def mount(self, home: HomeKey) -> Mount:
        """Return the mount. `instances` finds the claim by the workspace's id when it creates a pod."""
        return Mount(MountKind.PVC, home.workspace_id)

    async def list_all(self) -> Mapping[str, HomeStatus]:
        return {
            workspace_id: _judge(claims) for workspace_id, claims in (await self._cluster.claims.workspaces()).items()
        }

    async def status(self, home: HomeKey) -> HomeStatus:
        return _judge(await self._cluster.home_claims(home.workspace_id))

    async def limit(self, home: HomeKey, limit: int | None) -> bool:
        return False  # the size of the volume claim applies

    async def size(self, home: HomeKey) -> int | None:
        """Unknown: only the kubelet measures volumes, and asking it needs rights on nodes that CodeHub does not ask for."""
        return None

    async def provision(self, home: HomeKey, incarnation: str, fence: Fence) -> HomeCtx:
        there = await self._clear_the_way(home, fence)
        if there is not None:
            return there
        ctx = HomeCtx(incarnation)
        fence()
        claim = await self._make(home, ctx)
        self._at("provision:staged")
        await self._mark(claim, fence, "provision")
        return ctx

    async def archive(self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence) -> ArchiveReceipt:
        key = key_of(home.workspace_id, op_id)
        receipt = await asyncio.to_thread(find_receipt, self._store, key)
        if receipt is None:
            claim = await self._claim_of(home, ctx)
            try:
                receipt = await self._archive(home, claim, op_id, report, fence, read_only=True)
            except NeedsWriting:
                receipt = await self._archive(home, claim, op_id, report, fence, read_only=False)
        await self._jobs.remove_all(home.workspace_id, fence)
        return receipt

    async def _claim_of(self, home: HomeKey, ctx: HomeCtx) -> Claim:
        claims = await self._claims(home)
        if not claims:
            raise DataLost(f"the PersistentVolumeClaim of {home.workspace_id} is gone from the cluster")
        found = next((one for one in claims if _incarnation(one) == ctx.incarnation and is_whole(one)), None)
        if found is None:
            raise FenceLost(f"the home of {home.workspace_id} is of another incarnation than requested")
        return found

    async def _archive(
        self, home: HomeKey, claim: Claim, op_id: str, report: Report, fence: Fence, *, read_only: bool
    ) -> ArchiveReceipt:
        if not claim.volume:
            # No pod ever ran with it, so it is empty. A Job might never run either: its template may fit no node.
            return await self.archive_empty(home, op_id, fence)
        transfer = await self._jobs.open(home, claim, op_id, "archive", report, fence, read_only=read_only)
        loop = asyncio.get_running_loop()
        try:
            async with transfer.archive(self._most_bytes(claim)) as pieces:

                async def confirmed() -> Meta:
                    meta = await transfer.result()
                    await self._jobs.confirm(transfer, meta)
                    return meta

                def declared() -> Meta:
                    return asyncio.run_coroutine_threadsafe(confirmed(), loop).result()

                receipt = await self._workers.run(
                    lambda cancelled: upload_compressed(
                        self._store,
                        key_of(home.workspace_id, op_id),
                        from_loop(pieces, loop),
                        declared,
                        Work(report, fence, cancelled, self._at),
                    ),
                    Kind.ARCHIVE,
                )
        except OutOfSpace:
            raise
        except Transient as error:
            reported = await _of_the_pod(transfer, error)
            if isinstance(reported, NeedsWriting):
                await transfer.finish()
            raise reported from error
        return receipt

    def _most_bytes(self, claim: Claim) -> int:
        """Return how much is read of a transfer's pod, at whose address somebody else may answer."""
        return int(_MOST_PER_SIZE * max(quantity(self._options.size), _capacity(claim)))

    async def restore(
        self,
        home: HomeKey,
        archive_key: str,
        incarnation: str,
        report: Report,
        fence: Fence,
        sha256: str | None = None,
    ) -> HomeCtx:
        parse_key(archive_key)
        there = await self._clear_the_way(home, fence)
        if there is not None:
            if there.restore_marker == archive_key:
                return there
            raise Conflict(f"{home.workspace_id} has a complete home that was not restored from {archive_key}")
        meta = await asyncio.to_thread(read_meta, self._store, archive_key, sha256)
        self._check_room(meta)
        ctx = HomeCtx(incarnation, archive_key)
        fence()
        claim = await self._make(home, ctx)
        self._at("restore:staged")
        try:
            transfer = await self._jobs.open(home, claim, f"restore-{incarnation}", "restore", report, fence)
            await self._send(transfer, archive_key, meta, report)
            self._at("restore:unpacked")
            await self._jobs.confirm(transfer, meta)
            await self._mark(claim, fence, "restore")
        except BaseException:
            # The first error is the one that is reported. The next attempt cleans up.
            with contextlib.suppress(CodeHubError):
                await asyncio.shield(self._drop(claim, fence))
            raise
        await self._jobs.remove_all(home.workspace_id, fence)
        return ctx

    async def _send(self, transfer: Transfer, key: str, meta: Meta, report: Report) -> None:
        def pieces() -> Iterator[bytes]:
            sent = 0
            for piece in self._store.stream(key):
                self._at("restore:bytes")
                yield piece
                sent += len(piece)
                report(Progress("restore", sent, meta.size))

        made = FromThread(pieces())
        try:
            await transfer.restore(aiter(made), meta)
        except Transient:
            if made.error is not None:
                raise made.error from None
            raise

    def _check_room(self, meta: Meta) -> None:
        if meta.tar_bytes > quantity(self._options.size):
            raise OutOfSpace(
                f"the archive holds {meta.tar_bytes} bytes and a home {self._options.size}: raise CODEHUB_K8S_HOME_SIZE"
            )

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        claims = await self._claims(home)
        ours = [claim for claim in claims if _incarnation(claim) == ctx.incarnation]
        if not ours and current_claim(claims) is not None:
            raise FenceLost(f"the home of {home.workspace_id} is not the one that was to be removed")
        fence()
        self._at("deprovision:fenced")
        await self._jobs.remove_all(home.workspace_id, fence)
        self._at("deprovision:half-removed")
        await self._remove(ours, fence)
        self._at("deprovision:removed")

    async def purge(self, home: HomeKey, fence: Fence) -> None:
        await self._jobs.remove_all(home.workspace_id, fence)
        await self._remove(await self._claims(home), fence)

    async def sweep(self, home: HomeKey, fence: Fence) -> None:
        await self._jobs.remove_all(home.workspace_id, fence)
        await self._remove([claim for claim in await self._claims(home) if not is_whole(claim)], fence)

    async def _clear_the_way(self, home: HomeKey, fence: Fence) -> HomeCtx | None:
        claims = await self._claims(home)
        whole = current_claim(claims)
        if whole is not None:
            return _ctx(whole)
        await self._jobs.remove_all(home.workspace_id, fence)
        await self._remove(claims, fence)
        return None

    async def _claims(self, home: HomeKey) -> list[Claim]:
        """Return the claims from the API server, oldest first. Decisions here must not rely on the cached table."""
        selector = (
            f"{INSTALLATION}={self._cluster.installation_id},{WORKSPACE}={home.workspace_id},{ROLE}={ROLE_HOME}"
        )
        items, _ = await self._cluster.client.list_all(self._cluster.claims_path, {"labelSelector": selector})
        return sorted(map(decode_claim, items), key=lambda one: (one.meta.created, one.meta.uid))

    async def _make(self, home: HomeKey, ctx: HomeCtx) -> Claim:
        what = HomeClaim(
            name=claim_name(home.workspace_id, ctx.incarnation),
            installation=self._cluster.installation_id,
            workspace_id=home.workspace_id,
            incarnation=ctx.incarnation,
            restored_from=ctx.restore_marker,
            size=self._options.size,
            storage_class=self._options.storage_class,
            access_mode=self._options.access_mode,
        )
        try:
            made = await self._cluster.client.create(self._cluster.claims_path, home_claim(what))
        except NotFound as error:
            raise Transient(f"the namespace {self._cluster.client.namespace} does not exist: {error}") from error
        except AlreadyExists as error:
            raise Conflict(f"a claim {what.name} appeared: {error}") from error
        return await self._cluster.claims.apply(made)

    async def _mark(self, claim: Claim, fence: Fence, doing: str) -> None:
        fence()
        body = {
            "metadata": {
                "uid": claim.meta.uid,
                "annotations": {COMPLETE: "true", COMPLETED_AT: claim.meta.resource_version},
            }
        }
        try:
            marked = await self._cluster.client.patch(f"{self._cluster.claims_path}/{claim.meta.name}", body)
        except (NotFound, Conflict) as error:
            raise FenceLost(f"the claim {claim.meta.name} no longer exists: {error}") from error
        await self._cluster.claims.apply(marked)
        self._at(f"{doing}:swapped")

    async def _drop(self, claim: Claim, fence: Fence) -> None:
        await self._jobs.remove_all(claim.meta.workspace_id, fence)
        await self._remove([claim], fence)

    async def _remove(self, claims: Sequence[Claim], fence: Fence) -> None:
        """Remove exactly these claims, none created later, and wait until they are gone."""
        table = self._cluster.claims
        for claim in claims:
            fence()
            self._at("remove:fenced")
            path = f"{self._cluster.claims_path}/{claim.meta.name}"
            if not await self._cluster.client.delete(path, claim.meta.uid):
                await table.forget(claim.meta.uid)
        if await table.wait_until(lambda: not any(table.get(one.meta.uid) for one in claims), _GONE_TIMEOUT_S):
            return
        left = next(one for one in claims if table.get(one.meta.uid))
        raise Transient(
            f"the claim {left.meta.name} is being deleted, and is still in use: a pod that mounts it has not ended"
        )


async def _of_the_pod(transfer: Transfer, error: Transient) -> CodeHubError:
    """Return the pod's error for a broken stream, if it has one."""
    try:
        await transfer.result()
    except NeedsWriting as reported:
        return reported
    except CodeHubError as reported:
        return Transient(f"{error}; the pod says: {reported}")
    return error


def claim_name(workspace_id: str, incarnation: str) -> str:
    return f"codehub-ws-{workspace_id}-home-{incarnation}"


def _capacity(claim: Claim) -> float:
    """Return the volume's size, 0 if it is not known. It may have been expanded."""
    try:
        return quantity(claim.capacity)
    except ValueError:
        return 0.0


def _incarnation(claim: Claim) -> str:
    return claim.meta.annotations.get(INCARNATION, "")


def _ctx(claim: Claim) -> HomeCtx:
    return HomeCtx(_incarnation(claim), claim.meta.annotations.get(RESTORED_FROM))


def _judge(claims: Sequence[Claim]) -> HomeStatus:
    if not claims:
        return HomeStatus(HomeState.ABSENT)
    whole = current_claim(list(claims))
    return HomeStatus(HomeState.COMPLETE, _ctx(whole)) if whole is not None else HomeStatus(HomeState.INCOMPLETE)
