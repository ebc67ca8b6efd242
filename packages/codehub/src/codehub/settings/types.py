"""How the values of settings are written: durations, sizes, lists, addresses."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from codehub.domain.errors import Invalid
from codehub.domain.secret_keys import parse_keys


def _seconds(value: object) -> object:
    """`30`, `30s`, `10m`, `4h`, `7d`."""
    if isinstance(value, str) and value and value[-1] in _UNITS and value[:-1].replace(".", "", 1).isdigit():
        return float(value[:-1]) * _UNITS[value[-1]]
    return value


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _bytes(value: object) -> object:
    """`4294967296`, `512M`, `4G`."""
    if isinstance(value, str) and value[:-1].isdigit() and value[-1:].upper() in _SIZES:
        return int(value[:-1]) * _SIZES[value[-1].upper()]
    return value


_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _words(value: object) -> object:
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


def _bind(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError("expected HOST:PORT, for example 127.0.0.1:8000 or [::1]:8000")
    return value


def _base_url(value: str) -> str:
    if not value:
        return value
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/") or parts.query:
        raise ValueError("expected an address such as https://codehub.example.org, without a path")
    return f"{parts.scheme}://{parts.netloc}"


def _database_url(value: str) -> str:
    if value and not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    return value


def _redis_url(value: str) -> str:
    if value and not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("expected redis://HOST:PORT/0, rediss://… or unix:///path/to.sock")
    return value


def _archive_url(value: str) -> str:
    if value and not value.startswith(("file:///", "s3://")):
        raise ValueError("expected s3://BUCKET/PREFIX or file:///absolute/path")
    return value


def _quantity(value: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?", value):
        raise ValueError("expected a Kubernetes quantity, for example 500m, 2, 512Mi or 10Gi")
    return value


def _pairs(value: tuple[str, ...]) -> tuple[str, ...]:
    if not all(re.fullmatch(r"[^=\s]+=[^=\s]*", pair) for pair in value):
        raise ValueError("expected LABEL=VALUE pairs, separated by commas")
    return value


def _networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        try:
            IPv4Network(each)
        except ValueError as error:
            raise ValueError(f"expected networks such as 10.20.0.0/16 ({error})") from None
    return value


def _user(value: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", value):
        raise ValueError("expected the name of a system user, for example codehub")
    return value


def _workspace_host(value: str) -> str:
    if value == "none":
        return ""
    if value and not value.startswith("*."):
        raise ValueError("expected *. and a domain, for example *.ws.example.org, or none")
    return value


def _image_registry(value: str) -> str:
    value = value.rstrip("/")
    host, _, below = value.partition("/")
    is_host = re.fullmatch(r"[a-z0-9][a-z0-9.-]*(:[0-9]+)?", host) and (
        "." in host or ":" in host or host == "localhost"
    )
    if value and not (is_host and re.fullmatch(r"([a-z0-9][a-z0-9._/-]*)?", below)):
        raise ValueError("expected a registry and perhaps a path in it, for example registry.example.org/team")
    return value


def _secret_keys(value: str) -> str:
    try:
        if value:
            parse_keys(value)
    except Invalid as error:
        raise ValueError(str(error)) from None
    return value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Quantity = Annotated[str, AfterValidator(_quantity)]
Bind = Annotated[str, AfterValidator(_bind)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
ArchiveUrl = Annotated[str, AfterValidator(_archive_url)]
SecretKeys = Annotated[str, AfterValidator(_secret_keys)]
ImageRegistry = Annotated[str, AfterValidator(_image_registry)]
Pairs = Annotated[Words, AfterValidator(_pairs)]
Networks = Annotated[Words, AfterValidator(_networks)]
SystemUser = Annotated[str, AfterValidator(_user)]
WorkspaceHost = Annotated[str, AfterValidator(_workspace_host)]
OptionalBind = Annotated[str, AfterValidator(lambda value: _bind(value) if value else value)]
SecondsFromADay = Annotated[float, BeforeValidator(_seconds), Field(ge=86_400)]
