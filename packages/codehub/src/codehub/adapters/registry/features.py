"""ports.feature_source.FeatureSource: a feature's manifest and layer from a registry, verified and cached by digest."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from codehub.adapters.feature_files import files_of
from codehub.adapters.registry.http import RegistryHttp
from codehub.domain.dev_features import File
from codehub.domain.errors import ArchiveCorrupted, Invalid, Unavailable
from codehub.domain.images import ImageRef
from codehub.ports.feature_source import FetchedFeature

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_LAYER: Final = "application/vnd.devcontainers.layer.v1+tar"
_MOST_MANIFEST: Final = 256 << 10
_MOST_LAYER: Final = 2 << 20  # as for a folder of the repository, packed and unpacked
_MOST_CACHED: Final = 200
_TIMEOUT_S: Final = 120.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class RegistryFeatures:
    def __init__(self, http: RegistryHttp, cache: Path, timeout_s: float = _TIMEOUT_S) -> None:
        self._http = http
        self._cache = _Cache(cache)
        self._timeout_s = timeout_s

    async def fetch(self, ref: ImageRef) -> FetchedFeature:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._fetch(ref)
        except TimeoutError:
            raise Unavailable(f"the feature {ref} took longer than {self._timeout_s:.0f} s to fetch") from None
        except (Invalid, Unavailable) as error:
            raise type(error)(f"the feature {ref} cannot be fetched: {error}") from error

    async def _fetch(self, ref: ImageRef) -> FetchedFeature:
        manifest = await asyncio.to_thread(self._cache.get, ref.digest)
        if manifest is None:
            path = f"manifests/{ref.digest or ref.tag}"
            answer = await self._http.get(ref.registry, ref.repository, path, _MANIFEST, _MOST_MANIFEST)
            manifest = answer.body
            expected = ref.digest or answer.headers.get("docker-content-digest", "")
            if expected and expected != _digest(manifest):
                raise Invalid("its manifest does not have the digest that it should have")
            await asyncio.to_thread(self._cache.put, manifest)
        layer = _layer_of(manifest)
        packed = await asyncio.to_thread(self._cache.get, layer.digest)
        if packed is None:
            path = f"blobs/{layer.digest}"
            packed = (await self._http.get(ref.registry, ref.repository, path, "*/*", layer.size)).body
            if _digest(packed) != layer.digest:
                raise Invalid("its layer does not have the digest that its manifest names")
            await asyncio.to_thread(self._cache.put, packed)
        return FetchedFeature(_digest(manifest), await asyncio.to_thread(_unpacked, packed))


@dataclass(frozen=True, slots=True)
class _Layer:
    digest: str
    size: int


def _layer_of(manifest: bytes) -> _Layer:
    try:
        document = json.loads(manifest)
    except (ValueError, RecursionError):
        raise Invalid("its manifest is not JSON") from None
    layers = document.get("layers") if isinstance(document, dict) else None
    for layer in layers if isinstance(layers, list) else ():
        if not isinstance(layer, Mapping) or not str(layer.get("mediaType", "")).startswith(_LAYER):
            continue
        digest, size = layer.get("digest"), layer.get("size")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or not isinstance(size, int):
            raise Invalid("its manifest names a layer without a SHA-256 digest and a size")
        if not 0 < size <= _MOST_LAYER:
            raise Invalid(f"it is larger than {_MOST_LAYER >> 20} MiB")
        return _Layer(digest, size)
    raise Invalid("this is not a devcontainer feature")


def _unpacked(packed: bytes) -> Mapping[str, File]:
    raw = packed
    if packed.startswith(b"\x1f\x8b"):
        inflate = zlib.decompressobj(wbits=31)
        try:
            raw = inflate.decompress(packed, _MOST_LAYER + 1)
        except zlib.error:
            raise Invalid("its layer cannot be read") from None
    if len(raw) > _MOST_LAYER:
        raise Invalid(f"it is larger than {_MOST_LAYER >> 20} MiB")
    try:
        return files_of(raw, "a feature")
    except ArchiveCorrupted as error:
        raise Invalid("its layer cannot be read") from error


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class _Cache:
    """Files named by the digest of their content, which is checked again when they are read. Losing one does no harm."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, digest: str) -> bytes | None:
        if not digest:
            return None
        with contextlib.suppress(OSError):
            path = self._folder / digest.replace(":", "-")
            content = path.read_bytes()
            if _digest(content) == digest:
                os.utime(path)
                return content
        return None

    def put(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk: it is fetched again
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix="new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                os.replace(temporary, self._folder / _digest(content).replace(":", "-"))
            except OSError:
                os.unlink(temporary)
                raise
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        ages = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(self._folder))
        for _, path in ages[: max(0, len(ages) - _MOST_CACHED)]:
            os.unlink(path)
