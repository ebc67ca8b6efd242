"""Finds and aborts incomplete multipart uploads in S3.

The object-store library cannot list them, so these two requests are signed here (AWS signature version 4).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as Xml

import httpx

from codehub.domain.errors import BackendDown, Transient

_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class S3Access:
    """A bucket, the prefix in it, and the signing credentials."""

    bucket: str
    prefix: str
    endpoint: str
    region: str
    access_key: str
    secret_key: str

    @classmethod
    def of(cls, bucket: str, prefix: str, endpoint: str, region: str, access_key: str, secret_key: str) -> S3Access:
        """Return the access. Missing values come from the AWS_* environment, as in the library."""
        env = os.environ
        return cls(
            bucket=bucket,
            prefix=prefix,
            endpoint=(endpoint or env.get("AWS_ENDPOINT_URL_S3", "") or env.get("AWS_ENDPOINT_URL", "")).rstrip("/"),
            region=region or env.get("AWS_REGION", "") or env.get("AWS_DEFAULT_REGION", "") or "us-east-1",
            access_key=access_key or env.get("AWS_ACCESS_KEY_ID", ""),
            secret_key=secret_key or env.get("AWS_SECRET_ACCESS_KEY", ""),
        )


@dataclass(frozen=True, slots=True)
class Upload:
    key: str  # below the store's prefix
    upload_id: str


class UploadsOfS3:
    """Lists and aborts uploads.

    With credentials from another source (a machine's role) it silently finds nothing: such buckets need a lifecycle rule,
    as docs/backends.md says.
    """

    def __init__(self, access: S3Access) -> None:
        self._access = access
        self._base = access.endpoint or f"https://s3.{access.region}.amazonaws.com"
        self._client = httpx.Client(timeout=30, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def list(self, prefix: str) -> Iterator[Upload]:
        if not self._access.access_key:
            return
        front = f"{self._access.prefix}/" if self._access.prefix else ""
        query = {"uploads": "", "prefix": front + prefix, "max-uploads": "1000"}
        while True:
            response = self._request("GET", f"/{self._access.bucket}", query)
            if response.status_code == 404:  # no bucket yet, so no uploads
                return
            self._check(response, "list half-done uploads")
            try:
                root = Xml.fromstring(response.content)  # noqa: S314 - the store is ours; expat bounds entity expansion
            except Xml.ParseError as error:
                raise BackendDown(f"the archive store does not answer in S3's format: {error}") from error
            space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
            for item in root.findall(f"{space}Upload"):
                key = item.findtext(f"{space}Key") or ""
                if key.startswith(front + prefix):
                    yield Upload(key.removeprefix(front), item.findtext(f"{space}UploadId") or "")
            if root.findtext(f"{space}IsTruncated") != "true":
                return
            query["key-marker"] = root.findtext(f"{space}NextKeyMarker") or ""
            query["upload-id-marker"] = root.findtext(f"{space}NextUploadIdMarker") or ""

    def abort(self, upload: Upload) -> None:
        front = f"{self._access.prefix}/" if self._access.prefix else ""
        path = f"/{self._access.bucket}/{quote(front + upload.key)}"
        response = self._request("DELETE", path, {"uploadId": upload.upload_id})
        if response.status_code != 404:
            self._check(response, "abort an upload")

    def _check(self, response: httpx.Response, doing: str) -> None:
        if response.status_code >= 500:
            raise BackendDown(f"the archive store answered {response.status_code} to the request to {doing}")
        if response.status_code >= 300:
            raise Transient(f"the archive store answered {response.status_code} to the request to {doing}")

    def _request(self, method: str, path: str, query: dict[str, str]) -> httpx.Response:
        canonical = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query.items()))
        now = dt.datetime.now(dt.UTC)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers = {"host": urlsplit(self._base).netloc, "x-amz-content-sha256": _EMPTY_SHA256, "x-amz-date": stamp}
        signed = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = f"{method}\n{path}\n{canonical}\n{lines}\n{signed}\n{_EMPTY_SHA256}"
        scope = f"{day}/{self._access.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = b"AWS4" + self._access.secret_key.encode()
        for part in (day, self._access.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._access.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
        try:
            return self._client.request(method, f"{self._base}{path}?{canonical}", headers=headers)
        except httpx.HTTPError as error:
            raise BackendDown(f"the archive store does not answer: {error}") from error
